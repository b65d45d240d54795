"""Trials of all installed contributions on a small pair of runs: ``probe plugins --check``."""
