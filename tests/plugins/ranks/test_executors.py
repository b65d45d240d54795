"""Executors: the same bytes wherever ranks are compared, and workers that die."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs import preloaded
from support.runs.many_ranks import (  # noqa: F401
    FORMATS,
    GOOD,
    STAMP,
    Pair,
    _same_stamp,
    cut,
    empty,
    errors,
    files,
    pair,
    results,
    steps,
    summary,
)
from support.runs.recorded import forward, tensor, write_run

from probe_core.errors import UserError
from probe_core.plugins.hookspecs import hookimpl

# -- where it runs makes no difference -------------------------------------------------------------


SLOW = pytest.mark.slow
WAYS = {
    "threads": ["--executor", "threads", "-j", "2"],
    "more threads than ranks": ["--executor", "threads", "-j", "5"],
    "processes": ["-j", "2"],
    "a process": ["--executor", "processes", "-j", "1"],
    "as many processes": ["--executor", "processes", "-j", "2"],
    "chunks": ["--executor", "processes", "-j", "3"],
}


@pytest.fixture(scope="module")
def two_steps(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A recorded run of two ranks, twice as two steps."""
    base = tmp_path_factory.mktemp("steps")
    for side in ("npu_dump", "bench_dump"):
        for step in (0, 1):
            shutil.copytree(runs("stat_mix_dist2") / side / "step0", base / side / f"step{step}")
    return base / "npu_dump", base / "bench_dump"


@pytest.mark.parametrize("case", ["tensor_L1_dist2", pytest.param("two steps", marks=SLOW), "-da"])
def test_same_bytes_wherever_it_runs(case: str, probe: Any, runs: Any, two_steps: Pair, tmp_path: Path) -> None:
    base = runs("tensor_L1_dist2" if case == "-da" else case) if case != "two steps" else two_steps[0].parent
    options = ["-hl", *FORMATS, *(["-da"] if case == "-da" else [])]
    found, said = {}, {}
    for name, way in {"one by one": ["-j", "1"], **WAYS}.items():
        out = tmp_path / name
        assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", out, *options, *way) == 0
        found[name] = files(out)
        said[name] = sorted(re.sub(r"in \d+\.\d s", "", probe.out).replace(str(out), "OUT").splitlines())
    for name in WAYS:
        assert found[name].keys() == found["one by one"].keys(), name
        assert found[name] == found["one by one"], name
        assert said[name] == said["one by one"], name


def test_the_time_of_the_work_does_not_reach_the_files(probe: Any, pair: Any, tmp_path: Path, monkeypatch: Any) -> None:
    paths = pair([0, 1], [0, 1])
    found = []
    for stamp in (STAMP, "20270202020202"):
        monkeypatch.setattr("probe_core.library.get_time_stamp", lambda stamp=stamp: stamp)
        assert probe("compare", *paths, "-o", tmp_path / stamp, *FORMATS) == 0
        found.append(files(tmp_path / stamp))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "case",
    [
        "tensor_L1_edge",
        pytest.param("stat_L1_edge", marks=SLOW),
        "md5_L1_edge",
        pytest.param("debug_tensor", marks=SLOW),
    ],
)
def test_a_single_rank_in_chunks_gives_the_same_bytes(case: str, probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs(case)
    found = []
    for number, way in enumerate(
        ([], ["--executor", "threads"], *[["--executor", "processes", "-j", n] for n in "13"])
    ):
        out = tmp_path / f"o{number}"
        options = ["-o", out, "-hl", "--metric", "ulp", *FORMATS] if case == "tensor_L1_edge" else ["-o", out, *FORMATS]
        assert probe("compare", base / "npu_dump", base / "bench_dump", *options, *way) == 0, probe.err
        found.append(files(out))
    assert found[0] and all(one == found[0] for one in found)


def test_a_single_rank_at_fault_in_chunks(probe: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0], [0])
    cut(target / "rank0")
    assert probe("compare", target, golden, "-o", tmp_path / "o", "--executor", "processes", "-j", "2") == 2
    (line,) = errors(probe.err)
    assert "is not valid JSON" in line and "Traceback" not in probe.err


@pytest.mark.parametrize("way", [["-j", "1"], *WAYS.values()])
def test_plugins_are_told_of_every_rank(
    way: list[str], probe: Any, pair: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Once each, in the process that was called."""
    told: list[tuple[str, str]] = []
    watcher = types.ModuleType("plugin_watcher")
    watcher.probe_run_started = hookimpl(  # type: ignore[attr-defined]
        lambda target, golden: told.append(("started", Path(target).parent.name)),
        specname="probe_run_started",
    )
    watcher.probe_run_finished = hookimpl(  # type: ignore[attr-defined]
        lambda report: told.append(("finished", report.label)), specname="probe_run_finished"
    )
    from probe_core.plugins.manager import Manager, Plugin

    begin = Manager.__init__

    def with_watcher(self: Manager, *arguments: Any) -> None:
        begin(self, *arguments)
        self._add(Plugin("watcher", "watcher", "1"), lambda: watcher)

    monkeypatch.setattr(Manager, "__init__", with_watcher)
    assert probe("compare", *pair([0, 1], [0, 1]), "-o", tmp_path / "o", *way) == 0
    assert sorted(told) == [(what, f"rank{n}") for what in ("finished", "started") for n in (0, 1)]


def test_a_long_path_for_temporary_files(pair: Any, tmp_path: Path) -> None:
    """Batch systems give each job a directory of its own."""
    home = tmp_path / ("job" * 40)
    home.mkdir()
    done = preloaded.run(
        [sys.executable, "-m", "probe_core.cli", "compare", *map(str, pair([0, 1], [0, 1])), "-o", str(tmp_path / "o"), "-j", "2"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "TMPDIR": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_no_temporary_files_are_left(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    cut(tmp_path / "golden/rank2")
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    left = [name for name in files(tmp_path / "o") if "part" in name or name.startswith(".")]
    assert left == []


def test_executors_are_listed(probe: Any) -> None:
    assert probe("plugins", "--json") == 0
    listed = {plugin["name"]: list(plugin["contributes"].get("executors", ())) for plugin in json.loads(probe.out)}
    assert listed["ranks"] == ["threads", "processes"]
    assert probe("plugins") == 0
    assert "processes of this machine" in probe.out


# -- workers that die ------------------------------------------------------------------------------


DEADLY = """
import os, signal
from probe_core.plugins.hookspecs import hookimpl
from probe_core.model import Measurement
from probe_core.plugins.specs import MetricSpec, Needs

class Deadly:
    def measure(self, pair):
        value = pair.pair.target.value.statistics.max
        if value == 666:
            os._exit(9)
        if value == 667:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == 668:
            raise MemoryError
        return [Measurement(1.0)]

@hookimpl
def probe_metrics():
    return [MetricSpec("deadly", "dies", "probe_deadly:Deadly", ("Deadly",), Needs.STATISTICS)]
"""


@pytest.fixture(scope="module")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``deadly("compare", …)``: probe in a process of its own, with a metric that dies over a value."""
    site = tmp_path_factory.mktemp("site")
    (site / "probe_deadly.py").write_text(DEADLY)
    info = site / "probe_deadly-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-deadly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[probe]\ndeadly = probe_deadly\n")

    def run(*arguments: str | Path) -> Any:
        return preloaded.run(
            [sys.executable, "-m", "probe_core.cli", *map(str, arguments), "--metric", "deadly"],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(site)},
        )

    return run


@pytest.mark.parametrize(
    "value, way",
    [
        (666, ["-j", "2"]),
        (667, ["--executor", "processes", "-j", "2"]),
        (666, ["--executor", "processes", "-j", "6"]),
    ],
)
def test_a_worker_that_is_killed_loses_only_its_rank(
    value: int, way: list[str], deadly: Any, pair: Any, tmp_path: Path
) -> None:
    target, golden = pair([0, 2, 3], [0, 1, 2, 3])
    write_run(target / "rank1", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=value))})
    done = deadly("compare", target, golden, "-o", tmp_path / "o", "-c", "--format", "jsonl", *way)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    (line,) = errors(done.stderr)
    assert line.startswith("error: rank1: The process that compared it died")
    assert "--jobs" in done.stderr and "--resume" in done.stderr
    assert results(tmp_path / "o") == ["rank0", "rank2", "rank3"]
    assert [bool(row["Error"]) for row in summary(tmp_path / "o")] == [False, True, False, False]


def test_a_worker_that_is_killed_leaves_no_half_written_file(deadly: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0], [0, 1])
    write_run(target / "rank1", {**GOOD, "Torch.exp.2.forward": forward(tensor(value=666))})
    deadly("compare", target, golden, "-o", tmp_path / "o", "-c", "--format", "csv", "-j", "2")
    assert not [name for name in files(tmp_path / "o") if "rank1" in name]


def test_a_single_rank_whose_worker_is_killed(deadly: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([], [0])
    write_run(target / "rank0", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=666))})
    done = deadly("compare", target, golden, "-o", tmp_path / "o", "--executor", "processes", "-j", "2")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "The process that compared it died" in done.stderr
    assert files(tmp_path / "o") == {}


def test_memory_that_runs_out_in_a_metric_costs_its_cells(deadly: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0], [0, 1])
    write_run(target / "rank1", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=668))})
    done = deadly("compare", target, golden, "-o", tmp_path / "o", "--format", "csv")
    assert done.returncode == 0 and b" failed: MemoryError" in files(tmp_path / "o")["compare_result_rank1_T.csv"]


def test_a_defect_in_a_rank_is_a_defect(pair: Any, tmp_path: Path, probe: Any, monkeypatch: Any) -> None:
    from probe_reporters.csv import CsvWriter

    def broken(*_: Any) -> None:
        raise RuntimeError("oh dear")

    monkeypatch.setattr(CsvWriter, "write_batch", broken)
    for way in (["-j", "1"], ["--executor", "threads"]):
        assert probe("compare", *pair([0, 1], [0, 1]), "-o", tmp_path / "o", "--format", "csv", *way) == 70
        assert "RuntimeError: oh dear" in probe.err and "defect of probe" in probe.err
        assert not [name for name in files(tmp_path / "o") if name.endswith((".csv", ".part"))]


# -- the function ----------------------------------------------------------------------------------


def test_compare_distributed_gives_the_ranks_in_order(pair: Any, tmp_path: Path, capsys: Any) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([10, 2, 1, 0], [0, 1, 2, 10])
    reports = compare_distributed(str(target), str(golden), str(tmp_path / "o"))
    assert [report.label for report in reports] == ["rank0", "rank1", "rank2", "rank10"]
    assert [bool(report.suspects) for report in reports] == [False, True, False, False]
    names = [
        f"{name}_rank{n}_T.{end}"
        for name, end in (("advisor", "txt"), ("compare_result", "xlsx"))
        for n in (0, 1, 10, 2)
    ]
    assert sorted(files(tmp_path / "o")) == sorted([*names, "answer_T.json", "compare_summary_T.xlsx"])
    assert "output.0: max off by 8 times" in capsys.readouterr().out


def test_compare_distributed_gives_the_files_of_the_command(probe: Any, runs: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    steps = [runs("tensor_L1_dist2") / side / "step0" for side in ("npu_dump", "bench_dump")]
    compare_distributed(*map(str, steps), str(tmp_path / "a"), highlight=True, is_print_compare_log=False)
    assert probe("compare", *steps, "-o", tmp_path / "b", "-hl", "--format", "xlsx") == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_compare_distributed_with_a_bad_rank(pair: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([0, 1, 2], [0, 1, 2])
    cut(golden / "rank1")
    with pytest.raises(UserError, match="1 of 3 ranks cannot be compared") as caught:
        compare_distributed(str(target), str(golden), str(tmp_path / "o"), auto_analyze=False)
    (choice,) = caught.value.choices
    assert choice.startswith("rank1: ") and "is not valid JSON" in choice
    assert results(tmp_path / "o") == ["rank0", "rank2"]


def test_compare_distributed_with_an_empty_rank(pair: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([0, 1, 2], [0, 1, 2])
    empty(target / "rank1")
    with pytest.raises(UserError, match="rank1"):
        compare_distributed(str(target), str(golden), str(tmp_path / "o"))
    assert results(tmp_path / "o") == ["rank0", "rank2"]


@pytest.mark.parametrize("wrong", [{"suffix": "x"}, {"highlight": 1}, {"npu_dump_dir": 3}, {"output_path": 3}])
def test_compare_distributed_checks_its_arguments(wrong: dict[str, Any], pair: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([0, 1], [0, 1])
    right = {"npu_dump_dir": str(target), "bench_dump_dir": str(golden), "output_path": str(tmp_path / "o")}
    with pytest.raises(UserError):
        compare_distributed(**{**right, **wrong})
    assert not (tmp_path / "o").exists()
