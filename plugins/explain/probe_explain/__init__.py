"""Recorded calls computed again in higher precision: which of them introduced error (docs/explain.md)."""
