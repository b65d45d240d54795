"""Selection of the frames of a call stack that belong to the user's program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.store.frames import FRAMEWORK_FRAMES


def own_frames(frames: Sequence[str]) -> Iterator[str]:
    """Yield the frames outside framework and recorder, innermost first, each on one line."""
    for frame in frames:
        if not any(part in frame for part in FRAMEWORK_FRAMES):
            yield " ".join(frame.split())


def own_frame(frames: Sequence[str]) -> str:
    """Return the innermost frame outside framework and recorder; empty if there is none."""
    return next(own_frames(frames), "")
