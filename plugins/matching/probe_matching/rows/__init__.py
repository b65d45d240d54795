"""Comparison of the rows of two batches: axes of samples and tokens, and views of runs with common rows."""
