"""The first difference over all ranks (``-da``): the file of each rank, and the search over all of them."""
