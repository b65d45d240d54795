"""The run directory: names and layout of its files."""
