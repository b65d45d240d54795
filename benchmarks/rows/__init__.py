"""Pairs of runs that share some rows of their batches, and faults planted in them.

``python benchmarks/rows`` records all cases with tensors, compares each with ``--rows``, and prints whether
pairs without a fault agree and whether each fault is named first. ``python benchmarks/rows NAME …`` runs
some of them.
"""
