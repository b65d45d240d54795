"""Keeping of the last steps of a PyTorch training (docs/watch.md#the-moment-before)."""
