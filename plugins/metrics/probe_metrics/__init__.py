"""The metrics and policies that ship with probe: one file an algorithm, thresholds as data."""
