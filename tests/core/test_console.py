"""Wrapping of prose on a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest
from support.runs.recorded import forward, tensor, write_run

from probe_core import console
from probe_core.cli.main import run
from probe_core.progress import report_progress

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
        assert lines[0].startswith("  note: value") and all(line[:7] == "      " + line[6] for line in lines[1:])
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
    with console.show_progress("of rank 3"):
        for done in range(201):
            now = float(done)
            report_progress("comparing", done, 200)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"comparing of rank 3: {share}%" for share in (30, 60, 90)]


def test_summary_of_a_comparison_fits_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    width = 60
    for side, value in (("t", 9.0), ("g", 1.0)):
        calls = {"Torch.a.0.forward": forward(tensor(), None, 1.5, output=[tensor(value=value)])}
        for step in (0, 1):
            write_run(tmp_path / side / f"step{step}" / "rank", calls)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(console.shutil, "get_terminal_size", lambda: os.terminal_size((width, 20)))
    assert run(["compare", "t", "g", "-o", "o", "--format", "csv"]) == 0
    out = click.unstyle(capsys.readouterr().out)
    lines = [line for line in out.splitlines() if "wrote" not in line]
    assert len(lines) > 15 and max(map(len, lines)) <= width
