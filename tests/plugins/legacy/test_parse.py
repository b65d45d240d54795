"""``probe parse`` prints what ptdbg_ascend's ``parse`` printed, and the same of today's dumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_legacy.parse_command import format_run
from support.probe import Probe
from support.runs.older_dumps import dumps, ptdbg_row, write_rows  # noqa: F401

from probe_core.flow import opening
from probe_core.plugins.manager import Manager

FILE = "ptdbg23_conv_api_stack/bench/ptdbg_dump_v2.3/rank0/api_stack_bench_dump.pkl"


@pytest.mark.parametrize(
    ("prefix", "file"),
    [
        ("Functional_conv2d_1_backward", "v23_Functional_conv2d_1_backward"),
        ("Torch_relu_1_forward", "v23_Torch_relu_1_forward"),
        ("Torch_relu", "v23_prefix_Torch_relu"),
        ("no such call", "v23_nomatch"),
    ],
)
def test_the_output_of_the_tool(dumps: Path, probe: Probe, prefix: str, file: str) -> None:
    assert probe("parse", dumps / FILE, "-n", prefix) == 0, probe.err
    assert probe.out == (dumps / "parse_output" / f"{file}.txt").read_text()
    assert ("No row of" in probe.err) is (file == "v23_nomatch")


def test_rows_without_statistics_print_nothing(probe: Probe, tmp_path: Path) -> None:
    rows = [
        ["Torch_exp_0_forward_input.0", 101, [], "torch.float32", [2]],
        ptdbg_row("Torch_exp_0_forward_output", [1.0, 0.0, 0.5]),
    ]
    assert probe("parse", write_rows(tmp_path / "d.pkl", *rows)) == 0
    assert probe.out == (
        "\nStatistic Info:\n"
        "  [Torch_exp_0_forward_output][dtype: torch.float32][shape: [2]][max: 1.0][min: 0.0][mean: 0.5]\n"
    )


def test_dumps_of_hooks_and_of_today(dumps: Path, probe: Probe, runs: Any) -> None:
    assert probe("parse", dumps / "hooks_rc3_conv" / "npu.pkl", "-n", "Torch.relu.1.forward") == 0, probe.err
    lines = probe.out.splitlines()
    assert lines[1] == "Statistic Info:" and [line.partition("]")[0] for line in lines[2:]] == [
        "  [Torch.relu.1.forward.input.0", "  [Torch.relu.1.forward.output.0"
    ]  # fmt: skip
    file = runs("stat_L1_datamap") / "npu_dump" / "step0" / "rank" / "dump.json"
    assert probe("parse", file) == 0, probe.err
    assert probe.out.count("Statistic Info:") == 1 and "Trace back(" in probe.out and "[max: " in probe.out


def test_the_run_is_closed_if_not_all_lines_are_read(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opening.open_run(Manager(), runs("stat_L1_datamap") / "npu_dump" / "step0" / "rank" / "dump.json")
    close, closed = run.close, list[Path]()
    monkeypatch.setattr(run, "close", lambda: closed.append(run.path))
    monkeypatch.setattr(opening, "open_run", lambda *_: run)
    lines = format_run(Path("dump.json"), "", Manager(), None)
    next(lines)
    lines.close()  # type: ignore[attr-defined]
    assert closed == [run.path]
    close()


def test_files_that_are_none_are_refused(probe: Probe, tmp_path: Path) -> None:
    assert probe("parse", tmp_path / "none.pkl") == 2
    assert "cannot be read" in probe.err


def test_a_directory_is_refused_with_the_files_in_it(tmp_path: Path, probe: Any) -> None:
    (tmp_path / "step0").mkdir()
    (tmp_path / "step0/dump.json").write_text("{}")
    assert probe("parse", tmp_path) == 2
    assert "is a directory, and probe parse reads one file" in probe.err
    assert f"    {tmp_path / 'step0/dump.json'}\n" in probe.err
