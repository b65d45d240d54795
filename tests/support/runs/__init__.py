"""Recorded runs and results, written by hand or by a recorder, and read back."""
