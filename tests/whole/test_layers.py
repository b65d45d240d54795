"""The layers of the house: core, kits, plugins, and the rooms of the core, as pyproject.toml draws them."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from importlinter.cli import lint_imports
from support import ROOT

LARGEST_ROOM, CORE = 2_500, 10_230
"""Largest number of lines of a package of the core, and of the whole core without ``testing``."""


def test_imports_go_down_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=os.fspath(ROOT / "pyproject.toml"), no_cache=True) == 0, capsys.readouterr().out


def test_the_core_stays_small() -> None:
    rooms = Counter[str]()
    for file in (ROOT / "probe_core").rglob("*.py"):
        rooms[file.relative_to(ROOT / "probe_core").parts[0]] += len(file.read_text("utf-8").splitlines())
    del rooms["testing"]
    assert rooms.total() <= CORE and max(rooms.values()) <= LARGEST_ROOM, rooms
