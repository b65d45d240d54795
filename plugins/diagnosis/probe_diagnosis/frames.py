"""Selection of the frames of a call stack that belong to the user's program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from probe_core.errors import UserError
from probe_core.model.run import Run
from probe_core.store.frames import FRAMEWORK_FRAMES


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
