"""Trials of all installed contributions on a small pair of runs: the option ``--check`` of ``probe plugins``."""
