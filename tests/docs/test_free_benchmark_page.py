"""The example of the page on free_benchmark, run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from probe_pytorch.debugger import PrecisionDebugger
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "free-benchmark.md"


def test_the_example_of_free_benchmark_reports_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = [block for block in blocks(PAGE, "python") if "free_benchmark.json" in block]
    (config,) = [block for block in blocks(PAGE, "json") if '"task": "free_benchmark"' in block]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    Path("free_benchmark.json").write_text(config)
    exec(compile(program, PAGE.name, "exec"), {})
    PrecisionDebugger._instance._recorder.finish()  # type: ignore[union-attr]
    for step in (0, 1):
        with Path(f"watched/step{step}/rank/free_benchmark.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["api_name"] for row in rows] == ["Functional.layer_norm.0.forward"]
    assert "inconsistent: 2 results of Functional.layer_norm (2)" in capsys.readouterr().err
