"""What recording leaves on disk."""
