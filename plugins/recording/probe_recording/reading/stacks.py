"""Reading of ``stack.json`` in both of its forms (docs/formats.md#stack-json)."""

from __future__ import annotations

import sys
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.user_files import load_object


class RecordedStacks:
    """The call stack of each record; equal stacks are kept once."""

    def __init__(self, frames: dict[str, tuple[str, ...]]) -> None:
        self._frames = frames

    @classmethod
    def read(cls, path: Path) -> RecordedStacks:
        """Return the stacks in a file of either form: frames per record, or records grouped by stack.

        msprobe 1.0 writes the first form, msprobe 8.3 and probe write the second.

        Raises:
            UserError: The file cannot be read or has neither form.
        """
        frames: dict[str, tuple[str, ...]] = {}
        for key, value in load_object(path, "stack file").items():
            if not isinstance(value, list):
                raise _create_error(path, key, "must be a list")
            if _is_group(value):
                names, lines = value
                shared = _parse_frames(path, key, lines)
                for name in names:
                    frames[sys.intern(str(name))] = shared
            else:
                frames[key] = _parse_frames(path, key, value)
        return cls(frames)

    def get_frames(self, key: str) -> tuple[str, ...] | None:
        """Return the frames recorded for ``key``, innermost first, or None."""
        return self._frames.get(key)


def _is_group(value: list[object]) -> bool:
    return len(value) == 2 and all(isinstance(part, list) for part in value)


def _parse_frames(path: Path, key: str, lines: object) -> tuple[str, ...]:
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise _create_error(path, key, "must hold the frames as texts")
    return tuple(lines)


def _create_error(path: Path, key: str, problem: str) -> UserError:
    return UserError(
        f'The stack file {path} is not in a known form: "{key}" {problem}.',
        "Remove the file to compare without call stacks, or record the run again.",
    )
