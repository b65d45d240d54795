"""Comparison of calls with a golden while the program runs (docs/against.md)."""
