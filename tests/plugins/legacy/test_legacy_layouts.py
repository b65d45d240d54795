"""Directories and file names of the releases, with hand-written rows: all are read as what they are."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.probe import Probe
from support.runs.older_dumps import open_dump, write_rows

STACK = ["Torch_relu_0_forward_stack_info", [["/data/net.py", "7", "forward", "x = torch.relu(x)"]]]
SMALL, LARGE = [1.0, 0.0, 0.5, 2.0], [2.0, 0.0, 0.5, 2.0]


def value(name: str, statistics: list[float], flag: int = 0, extra: Any = ()) -> list[Any]:
    return [name, flag, extra or [], "torch.float32", [4], statistics]


def rows(statistics: list[float], flag: int = 0) -> list[Any]:
    return [value(f"Torch_relu_0_forward_{place}", statistics, flag) for place in ("input.0", "output")]


def compared(probe: Probe, target: Path, golden: Path, out: Path) -> list[dict[str, str]]:
    assert probe("compare", target, golden, "-o", out, "--format", "csv") == 0, probe.err
    (table,) = out.glob("compare_result_*.csv")
    with table.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


LAYOUTS = [
    "ptdbg_dump_v2.3/rank0/dump.pkl", "ptdbg_dump_v2.3/rank0/api_stack_dump.pkl", "mine_v3.2/rank0/dump.pkl",
    "ptdbg_dump_v3.2/rank0/list_dump.pkl", "ptdbg_dump_v3.2/rank0/range_dump.pkl",
    "ptdbg_dump_v4.0.T2/rank0/api_list_dump.pkl", "ptdbg_dump_v4.0.T2/rank0/api_stack_dump.pkl",
    "ptdbg_dump_v4.0.T2/step0/rank0/dump.pkl", "ptdbg_dump_v6.0/step0/rank0/dump.pkl",
    "ptdbg_dump_v6.0/step2/rank7/list_dump.pkl",
]  # fmt: skip


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_directories_and_prefixes(probe: Probe, tmp_path: Path, layout: str, before: bool) -> None:
    """The row of a call stack stands before the rows of its call, or after them."""
    for side, statistics in (("npu", LARGE), ("bench", SMALL)):
        own = rows(statistics)
        write_rows(tmp_path / side / layout, *([STACK, *own] if before else [*own, STACK]))
        (tmp_path / side / layout).with_name("compare_data.py").write_text("# written beside the dump")
    told = compared(probe, tmp_path / "npu", tmp_path / "bench", tmp_path / "out")
    assert [(row["NPU Name"], row["Bench Name"]) for row in told] == [
        (f"Torch.relu.0.forward.{place}", f"Torch.relu.0.forward.{place}") for place in ("input.0", "output.0")
    ]
    assert [row["Max diff"] for row in told] == ["1.0", "1.0"]
    run = open_dump(tmp_path / "npu" / layout)
    assert run.stack_of("Torch.relu.0.forward") == ("File /data/net.py, line 7, in forward, \n x = torch.relu(x)",)


def test_steps_are_compared_by_their_numbers(probe: Probe, tmp_path: Path) -> None:
    for side, steps in (("npu", (0, 2)), ("bench", (0, 1, 2))):
        for step in steps:
            write_rows(tmp_path / side / f"d_v6.0/step{step}/rank0/dump.pkl", *rows(SMALL))
    out = tmp_path / "out"
    assert probe("compare", tmp_path / "npu", tmp_path / "bench", "-o", out, "--format", "csv") == 0, probe.err
    tables = {str(path.parent.relative_to(out)) for path in out.rglob("compare_result_*.csv")}
    assert tables - {"."} == {"step0", "step2"}


def test_checksums_of_6_0(probe: Probe, tmp_path: Path) -> None:
    for side, checksum in (("npu", "0badcafe"), ("bench", "deadbeef")):
        names = [f"Torch.relu.0.forward.{place}" for place in ("input.0", "output")]
        given = [value(names[0], [], extra="00000001"), value(names[1], [], extra=checksum)]
        write_rows(tmp_path / side / "d_v6.0/step0/rank0/dump.pkl", *given)
    told = compared(probe, tmp_path / "npu", tmp_path / "bench", tmp_path / "out")
    assert [(row["NPU MD5"], row["BENCH MD5"], row["Result"]) for row in told] == [
        ("00000001", "00000001", "Pass"), ("0badcafe", "deadbeef", "Different"),
    ]  # fmt: skip


def test_overflow_files_of_4_0_are_named_after_the_call(probe: Probe, tmp_path: Path) -> None:
    for side, statistics in (("npu", LARGE), ("bench", SMALL)):
        file = tmp_path / side / "d_v4.0/rank0/Torch_relu_0_forward_1.pkl"
        write_rows(file, STACK, *rows(statistics, flag=101))
    told = compared(probe, tmp_path / "npu", tmp_path / "bench", tmp_path / "out")
    assert [row["Max diff"] for row in told] == ["1.0", "1.0"]


def test_rows_of_overflow_files_of_2_3_have_no_statistics(tmp_path: Path) -> None:
    short = [row[:5] for row in rows(SMALL, flag=101)]
    run = open_dump(write_rows(tmp_path / "Overflow_info_20230101_120000_1.pkl", STACK, *short, ""))
    assert [list(slot.value.statistics) for slot in run.record(0).slots] == [[None] * 4] * 2
