"""``probe`` in the process of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe_core.cli.main import run


class Probe:
    """Runs ``probe`` in this process and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code = -1
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        """The exit code; ``out`` and ``err`` hold what was printed."""
        self._capsys.readouterr()
        self.code = run([str(argument) for argument in arguments])
        self.out, self.err = self._capsys.readouterr()
        return self.code
