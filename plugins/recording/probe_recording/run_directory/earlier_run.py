"""Handling of an earlier recording in the directory of a new recording.

The first process of a launch moves the earlier recording away and writes a file that identifies the launch. By this
file, the other processes, and workers that an elastic launcher restarts, recognize their own launch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import create_path_error, make_directory, write_text
from probe_recording.run_directory.directory import Lock, list_labels, step_directories

LAUNCH_FILE = ".launch"
"""Name of the file in a run directory that identifies the launch that records there."""

MAX_KEPT_RUNS = 10_000
"""Largest number in the name of a directory to which an earlier recording is moved."""


def settle_earlier_run(
    root: Path,
    *,
    replace: bool,
    confirm: Callable[[Path], bool] | None,
    warn: Callable[[str], None],
    launch: str = "",
) -> None:
    """Move a recording in ``root`` to ``{root}.1``, or the next free number, unless it may be replaced.

    Call this once in each process, before anything is recorded.

    Args:
        root: The directory of the new run.
        replace: True to leave the earlier recording, which the recorder then replaces.
        confirm: A function that asks the user whether ``root`` may be replaced; None if nobody can answer.
        warn: A function that prints a warning.
        launch: A text that is equal in all processes of this launch; empty for that of the launcher. If it is
            given, the process joins another launch that records into ``root`` now.

    Raises:
        UserError: The user refused, another process records into ``root``, or the files cannot be moved.
    """
    joins_others = bool(launch)
    if not launch and is_one_of_several(os.environ):
        launch = find_launch_id(os.environ)
    if replace or not (root.is_dir() or launch):
        return
    make_directory(root)
    with SettlementLock(root):
        if launch and _read_launch(root) == launch:
            return
        if step_directories(root):
            if confirm is None:
                try:
                    moved_path = _move_away(root)
                except UserError:
                    if joins_others:
                        return
                    raise
                warn(
                    f'"{root}" held an earlier recording, which was moved to "{moved_path}". A later version of '
                    "probe will refuse instead. Give --replace to replace a recording, or another -o."
                )
            elif not confirm(root):
                raise UserError(
                    f'The recording in "{root}" is kept, and nothing was recorded.',
                    "Give another directory with -o, or --replace.",
                )
        if launch:
            write_text(root / LAUNCH_FILE, launch)


def is_one_of_several(environment: Mapping[str, str]) -> bool:
    """Return True in a process of a distributed launcher, such as torchrun."""
    return "RANK" in environment and environment.get("WORLD_SIZE", "1") != "1"


def find_launch_id(environment: Mapping[str, str]) -> str:
    """Return a text that is equal in all processes of a launch, even after an elastic restart.

    On a single node, the text contains the process of the launcher, because launchers reuse the port. On several
    nodes, it consists of the variables that all nodes share.
    """
    names = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "MASTER_ADDR")
    parts = [f"{name}={environment[name]}" for name in names if name in environment]
    if environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE"):
        parts.append(f"launcher={os.getppid()} started {_start_time(os.getppid())}")
    else:
        parts.append(f"port={environment.get('MASTER_PORT', '')}")
    return ", ".join(parts)


def _start_time(process: int) -> str:
    """Return the start of a process in clock ticks since the machine started; empty if it is unknown."""
    if sys.platform == "linux":
        with suppress(OSError, IndexError):
            text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
            return text.rpartition(")")[2].split()[19]  # field 22; the name before it may hold blanks
    return ""


class SettlementLock(Lock):
    """A lock for which the processes of a launch wait, so that one at a time holds it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "launch", waits=True)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()


def _read_launch(root: Path) -> str:
    try:
        return (root / LAUNCH_FILE).read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise create_path_error(root / LAUNCH_FILE, error) from error


def _move_away(root: Path) -> Path:
    """Move the steps in ``root`` to a new directory next to it and return that directory."""
    with ExitStack() as locks:
        for label in list_labels(root):
            lock = Lock(root, label)  # raises if another process records this rank now
            locks.callback(lock.release)
        new_root = _create_directory(root)
        for _, directory in step_directories(root):
            try:
                directory.rename(new_root / directory.name)
            except OSError as error:
                raise create_path_error(directory, error) from error
    return new_root


def _create_directory(root: Path) -> Path:
    for number in range(1, MAX_KEPT_RUNS):
        directory = root.with_name(f"{root.name}.{number}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise create_path_error(directory, error) from error
        return directory
    raise UserError(
        f'Next to "{root}" there are {MAX_KEPT_RUNS:,} earlier recordings.',
        "Delete some, or give another -o.",
    )
