"""The examples of docs/python.md run as they stand, and its table lists every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_pages import ROOT, blocks

from probe_core.library import OPTION_NAMES
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import OptionSpec

PAGE = ROOT / "docs" / "python.md"
EXAMPLES = blocks(PAGE, "python")


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(
    number: int,
    runs: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "to_dataframe()" in EXAMPLES[number]:
        pytest.importorskip("pandas")
    base = runs("tensor_L1_dist2")
    for name, side in (("npu_dump", "npu_dump"), ("gpu_dump", "bench_dump")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "step0").symlink_to(next((base / side).glob("step*")))
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[number], str(PAGE), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()


def test_the_comments_of_the_examples_are_what_they_print(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = runs("tensor_L1_dist2")
    (tmp_path / "npu_dump").symlink_to(base / "npu_dump")
    (tmp_path / "gpu_dump").symlink_to(base / "bench_dump")
    monkeypatch.chdir(tmp_path)
    (example,) = [text for text in EXAMPLES if "result_rank0" in text]
    exec(compile(example, str(PAGE), "exec"), {"__name__": "example"})
    (comment,) = re.findall(r"# (tables/.*)", example)
    assert capsys.readouterr().out.splitlines()[:2] == comment.split(", ")


def test_the_table_lists_every_option() -> None:
    section = PAGE.read_text("utf-8").partition("\n## Options\n")[2]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    specs = [spec for spec in Manager().specs("options", OptionSpec) if spec.command == "compare"]
    further = {option.keyword for spec in specs for option in spec.options}
    assert "diff_analyze" in further
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted({*OPTION_NAMES, *further})
