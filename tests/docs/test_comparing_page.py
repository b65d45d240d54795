"""The example of the page on comparing two runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "comparing.md"


def test_the_example_of_rows_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from probe_pytorch.debugger import PrecisionDebugger

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    (example,) = blocks(PAGE, "python")
    names: dict[str, Any] = {}
    exec(compile(example, "comparing.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[-1] == "AGREE"
    assert names["comparison"].answer.coverage.excused.keys() == {"row_shared"}


def test_the_commands_of_rows_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: Any) -> None:
    pytest.importorskip("torch")
    from rows.batches import ALL, images
    from rows.cases import Case
    from rows.nets import Convolutional
    from rows.score import record

    monkeypatch.chdir(tmp_path)
    for name, order in (("batch_of_1", [3]), ("reordered", [2, 0, 3, 1])):
        record(Case(name, Convolutional, images(order), images(ALL), ""), tmp_path / "runs")
        (tmp_path / name).symlink_to(tmp_path / "runs" / name / "target")
    (tmp_path / "batch_of_8").symlink_to(tmp_path / "runs" / "reordered" / "golden")
    lines = [line for block in blocks(PAGE, "bash") for line in block.splitlines() if "--rows" in line]
    assert len(lines) == 2
    for line in lines:
        assert probe(*shlex.split(line)[1:]) == 0, probe.err
        assert probe.out.startswith("AGREE"), probe.out
