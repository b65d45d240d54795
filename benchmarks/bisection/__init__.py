"""Benchmark of ``git bisect run probe check``: does it end at the commit that changed the numbers?

``python -m bisection [NAME …]`` generates a git repository of 64 commits for each planted change. Six commits do
not run. The first commit is recorded as the golden, and git bisects between it and the last commit.
"""
