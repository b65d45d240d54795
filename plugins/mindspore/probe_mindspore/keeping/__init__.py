"""Keeping of the last steps of a MindSpore program in memory (docs/watch.md#mindspore)."""
