"""Inputs of one rank at fault: a sentence about it, and the other ranks are compared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.many_ranks import (  # noqa: F401
    FORMATS,
    GOOD,
    _same_stamp,
    cut,
    empty,
    errors,
    files,
    pair,
    results,
    summary,
)

# -- inputs at fault: one sentence, and the other ranks --------------------------------------------


def gone(rank: Path) -> None:
    shutil.rmtree(rank)


def write(data: bytes) -> Callable[[Path], Any]:
    return lambda rank: (rank / "dump.json").write_bytes(data)


def directory(rank: Path) -> None:
    empty(rank)
    (rank / "dump.json").mkdir()


def doubled(rank: Path) -> None:
    shutil.copytree(rank, rank.with_name("rank01"))


def bad_stack(rank: Path) -> None:
    (rank / "stack.json").write_text('{"x": 3}')


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (empty, "There is no dump.json or debug.json or .pkl in"),
    "cut": (cut, "is not valid JSON"),
    "no bytes": (write(b""), "dump.json"),
    "binary": (write(bytes(range(256)) * 9), "dump.json"),
    "no data": (write(b'{"task": "statistics", "framework": "pytorch"}'), 'has no "data"'),
    "other task": (write(json.dumps({"task": "tensor", "framework": "pytorch", "data": GOOD}).encode()), "holds"),
    "nothing in common": (
        write(json.dumps({"task": "statistics", "framework": "pytorch", "data": {"Torch.a.0.forward": GOOD["Torch.exp.0.forward"]}}).encode()),
        "No row of the target has a partner",
    ),
    "a directory": (directory, "dump.json"),
    "bad stack": (bad_stack, "stack file"),
}  # fmt: skip


@pytest.mark.parametrize(
    "side, fault",
    [(side, fault) for side in ("target", "golden") for fault in FAULTS if (side, fault) != ("golden", "bad stack")],
)
def test_a_rank_at_fault_is_one_error_and_the_others_are_compared(
    side: str, fault: str, probe: Any, pair: Any, tmp_path: Path
) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    damage, says = FAULTS[fault]
    damage(tmp_path / side / "rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o", "-j", "1", *FORMATS) == 2
    (line,) = errors(probe.err)
    assert says in line and "rank1" in line and "Traceback" not in probe.err
    assert results(tmp_path / "o") == ["rank0", "rank2"]
    rows = {row["Rank"]: row["Error"] for row in summary(tmp_path / "o")}
    assert rows[0] == rows[2] == "" and (fault == "empty" or says in rows[1])
    if fault != "empty":
        assert "2 of 3 comparisons finished" in probe.out and "failed: rank1\n" in probe.out


def test_two_ranks_of_one_number_leave_the_others(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    doubled(tmp_path / "target/rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    (line,) = errors(probe.err)
    assert "two ranks of number 1" in line
    assert results(tmp_path / "o") == ["rank0", "rank2"]


def test_two_ranks_of_one_number_are_said(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    doubled(tmp_path / "target/rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o") == 2
    (line,) = errors(probe.err)
    assert "two ranks of number 1" in line and "rank01" in line


@pytest.mark.parametrize("side", ["target", "golden"])
def test_a_rank_without_partner_is_a_warning(side: str, probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    gone(tmp_path / side / "rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o") == 0
    assert not errors(probe.err) and "has rank 1." in probe.err
    assert results(tmp_path / "o") == ["rank0", "rank2"]


def test_all_ranks_at_fault(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1], [0, 1])
    for rank in (0, 1):
        cut(tmp_path / f"target/rank{rank}")
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    assert len(errors(probe.err)) == 2 and "0 of 2 comparisons finished" in probe.out
    assert all("is not valid JSON" in row["Error"] for row in summary(tmp_path / "o"))


def test_stacks_and_modules_may_be_missing(probe: Any, pair: Any, tmp_path: Path) -> None:
    """A rank has them or not; what it lacks is not shown of it, and costs nothing."""
    paths = pair([0, 1, 2], [0, 1, 2])
    for side in ("target", "golden"):
        (tmp_path / side / "rank0/stack.json").write_text(
            json.dumps({"Torch.exp.0.forward": ["File train.py, line 3"]})
        )
        (tmp_path / side / "rank1/construct.json").write_text(
            json.dumps({"Torch.exp.1.forward": "Module.net.forward.0"})
        )
        (tmp_path / side / "rank2/construct.json").write_text("{")
    assert probe("compare", *paths, "-o", tmp_path / "o", "--format", "csv") == 0, probe.err
    heads = {name: data.splitlines()[0] for name, data in files(tmp_path / "o").items() if "result" in name}
    assert [b"NPU_Stack_Info" in head for head in heads.values()] == [True, False, False]


def test_a_stack_file_that_was_asked_for_and_is_missing(probe: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0, 1], [0, 1])
    file = tmp_path / "compare.json"
    file.write_text(
        json.dumps({"npu_path": str(target), "bench_path": str(golden), "stack_path": str(tmp_path / "no")})
    )
    assert probe("compare", "-i", file, "-s", "-o", tmp_path / "o") == 2
    assert "Traceback" not in probe.err and len(errors(probe.err)) == 1


def test_unreadable_tensors_of_a_rank(probe: Any, runs: Any, tmp_path: Path) -> None:
    base = shutil.copytree(runs("tensor_L1_dist2"), tmp_path / "runs")
    data = sorted((base / "npu_dump/step0/rank1/dump_tensor_data").iterdir())
    for path in data[:7]:
        path.write_bytes(b"PK")
    said = []
    for number, options in enumerate((["-j", "1"], ["-j", "2"], ["-j", "4", "--executor", "processes"])):
        out = tmp_path / f"o{number}"
        assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", out, *options, *FORMATS) == 2
        assert "could not be read" in probe.err
        said.append((probe.err, files(out)))
        assert "could not be read" in summary(out)[1]["Error"] and summary(out)[0]["Error"] == ""
    assert said[0] == said[1] == said[2]
