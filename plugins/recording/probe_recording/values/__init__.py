"""Values of calls: their description in records, and their files."""
