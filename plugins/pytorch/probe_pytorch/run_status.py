"""The file that states how a recorded script ended (docs/recording.md#status)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from probe_core.files.atomic import make_directory, write_text


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a script that is being recorded.

    Attributes:
        ended: False while the script runs; it stays False if the process ends in another way.
        exit_code: The exit code of the script.
        exception: The name of the exception that ended the script; empty for none.
        complete: True if nothing of the recording was lost.
        steps: The numbers of the steps that were recorded completely.
    """

    ended: bool = False
    exit_code: int = 0
    exception: str = ""
    complete: bool = False
    steps: tuple[int, ...] = ()


class StatusFile:
    """The status of this process as a file in a directory, which other ranks may share.

    Args:
        directory: The directory; None to write no file.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory.absolute() / f"status-{os.getpid()}.json"
        self._status = RunStatus()

    def begin(self) -> None:
        """Write that the script begins."""
        self._write()

    def end(self, exit_code: int, exception: str, steps: tuple[int, ...], *, is_complete: bool) -> None:
        """Write how the script ended."""
        self._status = replace(
            self._status, ended=True, exit_code=exit_code, exception=exception, complete=is_complete, steps=steps
        )
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            make_directory(self._path.parent)
            write_text(self._path, json.dumps(asdict(self._status)) + "\n")
