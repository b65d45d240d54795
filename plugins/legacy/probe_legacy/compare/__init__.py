"""The result tables of the older tools, reproduced cell by cell."""
