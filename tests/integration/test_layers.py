"""The layers of the house: core, kits, plugins, and the rooms of the core, as pyproject.toml draws them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
ROOMS = {"matching": 2300, "store": 2300}
"""Lines that these rooms may have; all others 2,000."""


def test_imports_go_down_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=os.fspath(ROOT / "pyproject.toml"), no_cache=True) == 0, (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "room", sorted(path.name for path in (ROOT / "probe_core").iterdir() if path.is_dir())
)
def test_no_room_outgrows_its_place(room: str) -> None:
    lines = sum(
        len(file.read_text("utf-8").splitlines()) for file in (ROOT / "probe_core" / room).rglob("*.py")
    )
    assert lines <= ROOMS.get(room, 2000)
