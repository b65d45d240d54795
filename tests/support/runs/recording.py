"""Recording in tests: a debugger of one's own, and what it left behind."""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger


class Recording:
    """A debugger that is the only one while it is used, and the files of its run."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.path = path
        config = path.with_name(path.name + ".config.json")
        config.write_text(json.dumps({"dump_path": str(path), **fields}))
        PrecisionDebugger._instance = None
        self.debugger = PrecisionDebugger(config_path=config)

    def start(self, model: Any = None) -> None:
        self.debugger.start(model=model)

    def stop(self) -> None:
        self.debugger.stop()

    def step(self) -> None:
        self.debugger.step()

    def finish(self) -> None:
        recorder = self.debugger._recorder
        recorder.finish()
        atexit.unregister(recorder.finish)  # which would keep it for as long as the tests run
        PrecisionDebugger._instance = None

    def directory(self, step: int = 0, label: str = "rank") -> Path:
        return self.path / f"step{step}" / label

    def head(self, step: int = 0, name: str = "dump.json") -> dict[str, Any]:
        return json.loads((self.directory(step) / name).read_text())

    def records(self, step: int = 0, name: str = "dump.json") -> dict[str, Any]:
        return self.head(step, name)["data"]

    def stacks(self, step: int = 0) -> dict[str, list[str]]:
        groups = json.loads((self.directory(step) / "stack.json").read_text()).values()
        return {name: lines for names, lines in groups for name in names}

    def parents(self, step: int = 0) -> dict[str, str | None]:
        return json.loads((self.directory(step) / "construct.json").read_text())

    @property
    def errors(self) -> str:
        return "\n".join(path.read_text() for path in self.path.rglob("dump_error_info.log"))


@contextmanager
def recording(path: Path, **fields: Any) -> Iterator[Recording]:
    """A recording that is finished at the end; the recorder must not have failed inside.

    A test that records with ``"compile": "tap"`` is skipped if torch cannot do it.
    """
    if fields.get("compile") == "tap" and not hasattr(torch.library, "custom_op"):
        pytest.skip('this torch has no torch.library.custom_op, which "compile": "tap" needs')
    found = Recording(path, **fields)
    try:
        yield found
    finally:
        found.finish()
    assert not found.errors, found.errors
