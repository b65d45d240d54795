"""Metrics, policies and precision standards of probe: one file an algorithm, thresholds as data.

A result that a metric's docstring calls absent is no number: it is a reason, which tables show as a text.
"""
