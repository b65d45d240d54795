"""Comparison of two checkpoints (docs/checkpoints.md)."""
