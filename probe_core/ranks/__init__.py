"""Comparison of several ranks and steps: distribution over workers, and resuming."""
