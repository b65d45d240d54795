"""Fixtures of the tests of the pre-check's command line: the stand-in installed, commands that are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.standins.standin_precheck import install

Refuses = Callable[..., str]


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The framework of ``standin_precheck`` is installed in this directory, which is on the path."""
    site = install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site))
    return site


@pytest.fixture
def refuses(probe: Any, tmp_path: Path) -> Refuses:
    """``refuses("run_ut", …)``: exit 2, no traceback, nothing written; what was said."""

    def check(*arguments: str | Path, out: Path | None = None) -> str:
        directory = out or tmp_path / "refused"
        assert probe(*arguments, "-o", directory) == 2, probe.out + probe.err
        assert "Traceback" not in probe.err and probe.out == ""
        what, *how = probe.err.splitlines()
        assert re.fullmatch(r"error: \S.*[.:!?]", what), "one sentence"
        assert how and all(line.startswith("  ") for line in how), "no word on how to mend it"
        assert not directory.is_dir() or not list(directory.iterdir()), "something was left behind"
        return str(probe.err)

    return check
