"""One copy of recorded runs, and what a mutation is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKER = "MARKER"
"""The file that hostile input would make in the working directory, were it obeyed."""


@dataclass(slots=True)
class Case:
    """One copy of recorded runs, about to be damaged; all files are links to the originals."""

    home: Path
    rng: random.Random

    def records(self) -> list[Path]:
        """The record files of both runs."""
        return self._files("*_dump", "dump.json") + self._files("*_dump", "debug.json")

    def stacks(self) -> list[Path]:
        """The stack files of the target."""
        return self._files("npu_dump", "stack.json")

    def tensors(self) -> list[Path]:
        """The tensor files of both runs."""
        return self._files("*_dump", "*.pt")

    def compare(self) -> list[Path]:
        """The compare file, for ``-i``."""
        return [self.home / "compare.json"]

    def mapping(self) -> list[Path]:
        """The file for ``-dm``, where the runs have one."""
        return [path for path in (self.home / "data_mapping.yaml",) if path.is_file()]

    def _files(self, side: str, pattern: str) -> list[Path]:
        """Plain files alone: to read a fifo or a device would never end."""
        return sorted(path for path in self.home.glob(f"{side}/step0/**/{pattern}") if path.is_file())


Mutation = Callable[[Case], None]
Edit = Callable[[random.Random, bytes], bytes]
Files = Callable[[Case], Sequence[Path]]


def put(path: Path, data: bytes) -> None:
    """Replace a file; the one it was linked to stays as it is."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def edit_one(edit: Edit, files: Files, case: Case) -> None:
    """Apply an edit to one of the files."""
    path = case.rng.choice(files(case))
    put(path, edit(case.rng, path.read_bytes()))
