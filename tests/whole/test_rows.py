"""Rows of two batches, recorded and compared: what agrees, planted faults, and mistakes of users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rows.cases import CASES, FAULTS, PAIRS
from rows.score import record, score

AGREEING = ["decoder-one", "decoder-order", "folded-order", "encoder-one", "images-one", "images-order",
            "vision-order", "left-right", "left-wide", "packed-padded", "decoder-bf16"]  # fmt: skip
FAULTY = ["decoder-one-eps", "decoder-order-axis", "folded-order-gelu", "encoder-order-pool", "images-order-slope",
          "vision-order-clamp", "left-right-batch", "packed-padded-batch", "packed-packed-gelu"]  # fmt: skip


@pytest.mark.parametrize("name", AGREEING)
def test_common_rows_agree(name: str, tmp_path: Path) -> None:
    record(CASES[name], tmp_path)
    found = score(CASES[name], tmp_path)
    assert found.outcome == "AGREE" and not found.unknown, found
    assert found.compared > found.recorded / 2


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_named_first(name: str, tmp_path: Path) -> None:
    record(CASES[name], tmp_path)
    found = score(CASES[name], tmp_path)
    assert found.is_right, found


def test_the_benchmark_has_twenty_pairs_and_twenty_faults() -> None:
    assert len(PAIRS) == len(FAULTS) == 20 and len(CASES) == 40


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two runs, of one image and of eight."""
    directory = tmp_path_factory.mktemp("runs")
    record(CASES["images-one"], directory)
    return directory / "images-one"


def test_the_answer_counts_what_rows_do_not_compare(recorded: Path, tmp_path: Path, probe: Any) -> None:
    runs = recorded / "target", recorded / "golden"
    assert probe("compare", *runs, "-o", tmp_path, "--rows", "target=0 golden=3") == 0, probe.err
    assert probe.out.startswith("AGREE") and "gradients of the target are multiplied by 0.125" in probe.out
    answer = json.loads(next(tmp_path.glob("answer_*.json")).read_text())
    assert {"row_shared", "row_reduced"} <= answer["coverage"]["not_compared"].keys()


def test_other_rows_differ(recorded: Path, tmp_path: Path, probe: Any) -> None:
    runs = recorded / "target", recorded / "golden"
    assert probe("compare", *runs, "-o", tmp_path, "--rows", "golden=4") == 0, probe.err
    assert probe.out.startswith("DIVERGED: Module.first.Conv2d.forward.0 receives values that differ"), probe.out


@pytest.mark.parametrize(
    ("rows", "words"),
    [("golden=8", "no row 8"), ("target=0", "leaves 1 rows"), ("3", "not the name of a file"),
     ("tokens.json", "cannot be read")],
)  # fmt: skip
def test_mistakes_end_with_one_sentence(rows: str, words: str, recorded: Path, tmp_path: Path, probe: Any) -> None:
    assert probe("compare", recorded / "target", recorded / "golden", "-o", tmp_path, "--rows", rows) == 2
    assert words in probe.err and "Traceback" not in probe.err


def test_rows_need_tensors(recorded: Path, tmp_path: Path, probe: Any) -> None:
    runs = []
    for side in ("target", "golden"):
        plain = json.loads((recorded / side / "step0" / "rank" / "dump.json").read_text())
        runs.append(tmp_path / side)
        runs[-1].mkdir()
        (runs[-1] / "dump.json").write_text(json.dumps({**plain, "task": "statistics"}))
    assert probe("compare", *runs, "-o", tmp_path / "out", "--rows", "golden=3") == 2
    assert "--rows needs recorded tensors" in probe.err
