"""Comparisons on a dask cluster."""
