"""Selection of the frames of a call stack that belong to the user's program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PureWindowsPath  # the latter splits paths at both separators

from probe_core.errors import UserError
from probe_core.model.run import Run
from probe_core.store.frames import FRAMEWORK_FRAMES

_FUNCTION_PATTERN = re.compile(r"File (.+?), line \d+, in ([^,]+)")
_FRAME_PATTERN = re.compile(r"File (.+?), (line \d+, in [^,]+)")
"""Pattern of a stack frame. Group 1 is the path of the file, group 2 the line number and the function."""


def shorten_frame(frame: str) -> str:
    """Return the name of the file, the line and the function of a frame."""
    match = _FRAME_PATTERN.match(frame)
    return frame if match is None else f"{PureWindowsPath(match[1]).name}, {match[2]}"


def parse_function(frame: str) -> tuple[str, ...]:
    """Return the path of the file and the name of the function of a frame; empty for other texts."""
    match = _FUNCTION_PATTERN.match(frame)
    return match.groups() if match else ()


def select_own_frames(frames: Sequence[str]) -> Iterator[str]:
    """Yield the frames outside framework and recorder, innermost first, each on one line."""
    for frame in frames:
        if not any(part in frame for part in FRAMEWORK_FRAMES):
            yield " ".join(frame.split())


def find_own_frame(frames: Sequence[str]) -> str:
    """Return the innermost frame outside framework and recorder; empty if there is none."""
    return next(select_own_frames(frames), "")


def find_entering_frame(frames: Sequence[str]) -> str:
    """Return the frame that calls the framework or a recorded module from outside; empty if there is none.

    It is the own frame around the outermost frame of the framework, such as the line of a training loop that
    calls the model.
    """
    places = [place for place, frame in enumerate(frames) if any(part in frame for part in FRAMEWORK_FRAMES)]
    return find_own_frame(frames[places[-1] + 1 :] if places else frames)


def load_stacks(run: Run, path: Path | None) -> None:
    """Load the call stacks of a run; a missing or damaged file gives none."""
    if path is not None and path.is_file():
        with suppress(UserError):
            run.use_stacks(path)


def find_frames(run: Run, op: str) -> tuple[str, ...]:
    """Return the frames of an op, innermost first, among the loaded stacks.

    A backward call, which no line makes, has the frames of its forward call unless it has frames of its own.
    """
    frames = run.stack_of(op)
    if not frames and op.endswith(".backward"):
        frames = run.stack_of(f"{op.removesuffix('backward')}forward")
    return frames or ()
