"""The task ``free_benchmark``: repeat single calls with a small change and compare both results.

Modules whose names begin with ``pytorch`` import torch; the others know no framework.
"""
