"""Wrapping of prose on a terminal."""

from __future__ import annotations

import os
import sys

import pytest

from probe_core.cli import console
from probe_core.progress import tell

PROSE = "  note: " + "value " * 30 + "\x1b[31m\n 中文中文 end"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_show_wraps_prose_only_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(console.shutil, "get_terminal_size", lambda: os.terminal_size((40, 20)))
    console.show(PROSE, wrap=True)
    lines = capsys.readouterr().out.splitlines()
    assert not any("\x1b" in line for line in lines)
    if is_terminal:
        assert len(lines) > 4 and max(map(len, lines)) <= 40
        assert lines[0].startswith("  note: value") and all(
            line[:7] == "      " + line[6] for line in lines[1:]
        )
        assert all(line[6] != " " for line in lines[1:])
    else:
        assert len(lines) == 1
    console.show("  next: " + "probe compare " * 9)
    assert len(capsys.readouterr().out.splitlines()) == 1, "a command can be pasted"


def test_progress_prints_a_line_a_minute_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.progress("of rank 3"):
        for done in range(201):
            now = float(done)
            tell("comparing", done, 200)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"comparing of rank 3: {share}%" for share in (30, 60, 90)]
