"""Executor of probe that runs comparisons on a dask cluster."""
