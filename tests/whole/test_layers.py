"""The layers: core, kits, plugins, and the packages of the core, as pyproject.toml declares them."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from importlinter.cli import lint_imports
from support import ROOT

MAX_PACKAGE_LINES, MAX_CORE_LINES = 2_400, 8_000
"""Largest number of lines of a package of the core, and of the whole core without ``testing``."""


def test_imports_go_down_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=os.fspath(ROOT / "pyproject.toml"), no_cache=True) == 0, capsys.readouterr().out


def test_the_core_stays_small() -> None:
    packages = Counter[str]()
    for file in (ROOT / "probe_core").rglob("*.py"):
        packages[file.relative_to(ROOT / "probe_core").parts[0]] += len(file.read_text("utf-8").splitlines())
    del packages["testing"]
    assert packages.total() <= MAX_CORE_LINES and max(packages.values()) <= MAX_PACKAGE_LINES, packages
