"""Four ranks compared and merged, against a table written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openpyxl
import pytest
from support.runs.recorded import forward, tensor, write_run
from support.spreadsheets import displayed

REDUCE, GATHER = "Distributed.all_reduce.0.forward", "Distributed.all_gather.0.forward"
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2, 3], "group_id": "1"}


def rank(given: float, reduced: float, *, gathers: bool) -> dict[str, Any]:
    """The records of a rank whose tensors' four statistics are one number."""
    records = {
        "Torch.exp.0.forward": forward(tensor(value=1.0), output=[tensor(value=given)]),
        REDUCE: {
            **forward(tensor(value=given), output=[tensor(value=reduced)]),
            "input_kwargs": {"group": GROUP},
        },
    }
    if gathers:
        records[GATHER] = forward(None, tensor(value=given), output=[tensor(value=reduced)])
    return records


BLANK = None
NULL = "NPU:None  Bench:None"
RANKS = "NPU:[0, 1, 2, 3]  Bench:[0, 1, 2, 3]"
TABLE = {
    "Max diff": [
        ["NPU Name", "rank0", "rank1", "rank2", "rank3"],
        [f"{REDUCE}.input.0", 0, 0.5, 0, 0],
        [f"{REDUCE}.input.group", RANKS, RANKS, RANKS, RANKS],
        [f"{REDUCE}.output.0", 0.5, 0.5, 0.5, 0.5],
        [f"{GATHER}.input.0", NULL, NULL, NULL, BLANK],
        [f"{GATHER}.input.1", 0, 0.5, 0, BLANK],
        [f"{GATHER}.output.0", 0.5, 0.5, 0.5, BLANK],
    ],
    "MaxRelativeErr": [
        ["NPU Name", "rank0", "rank1", "rank2", "rank3"],
        [f"{REDUCE}.input.0", "0.0%", "25.0%", "0.0%", "0.0%"],
        [f"{REDUCE}.input.group", RANKS, RANKS, RANKS, RANKS],
        [f"{REDUCE}.output.0", "6.25%", "6.25%", "6.25%", "6.25%"],
        [f"{GATHER}.input.0", NULL, NULL, NULL, BLANK],
        [f"{GATHER}.input.1", "0.0%", "25.0%", "0.0%", BLANK],
        [f"{GATHER}.output.0", "6.25%", "6.25%", "6.25%", BLANK],
    ],
}


@pytest.mark.parametrize("form", ["xlsx", "csv", "jsonl"])
def test_four_ranks_side_by_side(form: str, probe: Any, tmp_path: Path) -> None:
    for number in range(4):
        given = 2.5 if number == 1 else 2.0
        gathers = number != 3
        write_run(tmp_path / "t" / f"rank{number}", rank(given, 8.5, gathers=gathers))
        write_run(tmp_path / "g" / f"rank{number}", rank(2.0, 8.0, gathers=gathers))
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "--format", form) == 0
    config = tmp_path / "config.yaml"
    config.write_text("api: [Distributed.all_reduce, Distributed.all_gather]\n"
                      "compare_index: [Max diff, MaxRelativeErr]\n")  # fmt: skip
    assert probe("merge_result", "-i", tmp_path / "o", "-o", tmp_path / "m", "-config", config) == 0, probe.err
    (path,) = (tmp_path / "m").iterdir()
    book = openpyxl.load_workbook(path)
    assert {sheet.title: [list(map(displayed, row)) for row in sheet] for sheet in book} == TABLE
