"""Removal of the files of an earlier run; other files are never deleted, and no link is followed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from probe_core.files.atomic import refuse_link
from probe_watch.grad_probe.names import (
    NPY_SUFFIX,
    OLD_SUFFIX,
    PACKED_NAME,
    STEP_NAME,
    SUMMARY_NAME,
    get_packed_path,
    get_summary_path,
    parse_number,
    step_directory,
)


def remove_earlier_steps(directory: Path, first_step: int) -> int:
    """Remove the files of all steps starting at ``first_step`` and return the number of these steps.

    Args:
        directory: The directory of the rank.
        first_step: The first step to remove.
    """
    refuse_link(directory)
    steps: set[int] = set()
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            for pattern in (SUMMARY_NAME, PACKED_NAME, STEP_NAME):
                step = parse_number(pattern, path.name)
                if step is not None and step >= first_step:
                    steps.add(step)
    return sum(remove_step(directory, step) for step in steps)


def remove_step(directory: Path, step: int) -> bool:
    """Remove the files of a step and return True if there were any."""
    files = [get_summary_path(directory, step), get_packed_path(directory, step)]
    signs = step_directory(directory, step)
    if signs.is_dir() and not signs.is_symlink():
        files += [path for path in signs.iterdir() if path.suffix in (NPY_SUFFIX, OLD_SUFFIX, ".part")]
    removed = False
    for path in files:
        with suppress(FileNotFoundError):
            path.unlink()
            removed = True
    with suppress(OSError):  # there is none, or it holds other files
        signs.rmdir()
    return removed
