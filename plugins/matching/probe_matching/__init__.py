"""Matchers for runs whose names differ, and common names for runs of two frameworks.

Plugins of other distributions import the names of ``probe_matching.api``, and nothing else of
this package: its modules may change between releases.
"""
