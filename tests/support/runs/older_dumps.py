"""Dumps of ptdbg_ascend and torch_npu.hooks, which these tools wrote themselves, and hand-written rows."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from probe_legacy.reading.lines import HOOKS, detect_format
from probe_legacy.reading.reader import HooksReader, PtdbgReader

from probe_core.model.run import Run
from support import DATA


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the dumps, a folder each."""
    root = tmp_path_factory.mktemp("older")
    with tarfile.open(DATA / "legacy.tar.xz") as file:
        file.extractall(root, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return root / "legacy"


def open_dump(path: Path) -> Run:
    """Open a file with the reader that its first lines ask for."""
    return (HooksReader() if detect_format(path) == HOOKS else PtdbgReader()).open(path)


def write_rows(path: Path, *rows: Any, end: str = "\n") -> Path:
    """Write rows as the tools do, one JSON value a line; texts are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + end)
    return path


def ptdbg_row(name: str, statistics: list[Any], shape: tuple[int, ...] = (2,), extra: Any = ()) -> list[Any]:
    """Return a row of ptdbg_ascend."""
    return [name, 1, extra or [], "torch.float32", list(shape), statistics]


def hooks_row(name: str, *values: float, shape: tuple[int, ...] = ()) -> list[Any]:
    """Return a row of torch_npu.hooks."""
    return [name, list(values), "torch.float32", list(shape or (len(values),))]
