"""Metrics, policies and precision standards of probe: one file an algorithm, thresholds as data.

If the docstring of a metric calls a result absent, the result is a reason, which tables show as a text.
"""
