"""``probe compare --as``: which files it writes, and when it is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from support.probe import Probe
from support.runs.older_dumps import dumps  # noqa: F401


def names_in(directory: Path) -> list[str]:
    return sorted(re.sub(r"\d{14}", "T", path.name) for path in directory.iterdir())


def test_the_table_and_the_advice_of_ptdbg(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    run = dumps / "ptdbg23_conv_api_stack"
    assert probe("compare", run / "npu", run / "bench", "-o", tmp_path, "--as", "ptdbg") == 0, probe.err
    assert names_in(tmp_path) == ["advisor_T.txt", "answer_T.json", "compare_result_T.csv"]
    (table,), (advice,) = tmp_path.glob("*.csv"), tmp_path.glob("*.txt")
    assert table.read_bytes() == (run / "expected" / "compare_result.csv").read_bytes()
    assert advice.read_bytes() == (run / "expected" / "advisor.txt").read_bytes()
    assert "as ptdbg_ascend compared them, 67 rows" in probe.out and "DIVERGED" in probe.out


def test_files_of_several_ranks(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    for side in ("npu", "bench"):
        for rank in range(2):
            source = dumps / "ptdbg23_conv_all" / side / "ptdbg_dump_v2.3" / "rank0"
            shutil.copytree(source, tmp_path / side / f"rank{rank}")
    out = tmp_path / "out"
    assert probe("compare", tmp_path / "npu", tmp_path / "bench", "-o", out, "--as", "ptdbg", "-c") == 0, probe.err
    assert names_in(out) == [f"compare_result_rank{rank}-rank{rank}_T.csv" for rank in range(2)]


def test_the_table_of_hooks(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    runs = [dumps / "hooks_rc3_conv" / f"{side}.pkl" for side in ("npu", "cpu")]
    assert probe("compare", *runs, "-o", tmp_path, "--as", "hooks") == 0, probe.err
    assert names_in(tmp_path) == ["answer_T.json", "compare_result_T.csv"]


def test_dumps_of_another_tool_are_refused(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    run = dumps / "hooks_rc3_conv" / "npu.pkl"
    assert probe("compare", run, run, "-o", tmp_path, "--as", "ptdbg") == 2
    assert "is no dump of ptdbg_ascend" in probe.err and "Leave --as ptdbg out" in probe.err


def test_a_format_is_refused(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    run = dumps / "hooks_rc3_conv" / "npu.pkl"
    assert probe("compare", run, run, "-o", tmp_path, "--as", "hooks", "--format", "csv") == 2
    assert "Leave one of them out" in probe.err


def test_the_workbook_and_the_advice_of_6_0(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    runs = [next((dumps / "ptdbg60_all" / side).rglob("*.pkl")) for side in ("npu", "bench")]
    assert probe("compare", *runs, "-o", tmp_path, "--as", "ptdbg") == 0, probe.err
    assert names_in(tmp_path) == ["advisor_T.txt", "answer_T.json", "compare_result_T.xlsx"]
    (advice,) = tmp_path.glob("*.txt")
    assert advice.read_text().startswith("Line: 8\nSuspect Nodes: Torch.sigmoid.0.forward.input.0\n")


def test_numbers_of_calls_may_differ(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    runs = [next((dumps / "ptdbg40_branch" / side).rglob("*.pkl")) for side in ("npu", "bench")]
    assert probe("compare", *runs, "-o", tmp_path, "--as", "ptdbg", "-f") == 0, probe.err
    (table,) = tmp_path.glob("*.csv")
    expected = dumps / "ptdbg40_branch/expected_fuzzy/compare_result.csv"
    assert table.read_bytes() == expected.read_bytes()


def test_shapes_of_hooks_must_match(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    runs = [dumps / "hooks_50_full_xfmr_fp16" / f"{side}.pkl" for side in ("npu", "cpu")]
    assert probe("compare", *runs, "-o", tmp_path, "--as", "hooks", "--as-shapes") == 0, probe.err
    (table,) = tmp_path.glob("*.csv")
    assert len(table.read_text().splitlines()) == 1 + 3  # of other dtypes the rest


def test_shapes_always_match_in_ptdbg(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    run = dumps / "ptdbg60_summary" / "npu"
    assert probe("compare", run, run, "-o", tmp_path, "--as", "ptdbg", "--as-shapes") == 2
    assert "Leave --as-shapes out" in probe.err
