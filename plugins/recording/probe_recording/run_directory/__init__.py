"""The directory of a run, its files, and the claims of processes on it."""
