"""The first difference over all ranks (``-da``): a file for each rank, and the search over all files."""
