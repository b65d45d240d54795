"""The ranks and steps of runs, the scheduler that compares several at the same time, and worker processes.

Plugins of other distributions import the names of ``probe_ranks.api``, and nothing else of
this package: its modules may change between releases.
"""
