"""The commands of the pre-check."""
