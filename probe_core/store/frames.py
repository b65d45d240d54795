"""Frames of call stacks: which are a program's own, and not the framework's or the recorder's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

FRAMEWORK_FRAMES: set[str] = set()
"""Parts of the frames of frameworks and recorders, which make no call of their own accord.

The plugin manager adds those of each ``ReaderSpec``.
"""


def own_frames(frames: Sequence[str]) -> Iterator[str]:
    """The frames outside framework and recorder, innermost first, each on one line."""
    for frame in frames:
        if not any(part in frame for part in FRAMEWORK_FRAMES):
            yield " ".join(frame.split())


def own_frame(frames: Sequence[str]) -> str:
    """The innermost frame outside framework and recorder; an empty text if there is none."""
    return next(own_frames(frames), "")
