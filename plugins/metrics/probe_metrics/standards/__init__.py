"""Precision standards of the pre-check, and the rules for the status of a single output."""
