"""Texts by which the frames of frameworks and recorders are distinguished from those of the user's program."""

FRAMEWORK_FRAMES: set[str] = set()
"""Texts that occur in frames of frameworks and recorders; the manager adds those of each ``ReaderSpec``."""
