"""The conditions of both runs, and what they explain."""
