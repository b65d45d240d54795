"""Callbacks of training frameworks, each in a module that imports its framework (docs/launchers.md#callbacks)."""
