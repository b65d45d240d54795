"""``merge_result --check-collectives``: who received something else than all ranks gave is named."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs import collective_calls, distributed_training, parallel_training
from support.programs.collective_calls import STEPS, WORLD
from support.programs.parallel_training import FAULTS
from support.programs.rank_processes import run_ranks

API = re.compile(r"Distributed\.(\w+)\.\d+\.forward")


# -- what was recorded ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three ranks, a step for each of ``STEPS``."""
    out = tmp_path_factory.mktemp("live")
    run_ranks([sys.executable, collective_calls.__file__, str(out)], out, WORLD)
    return out / "run"


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two ranks that calls every collective by hand."""
    home = tmp_path_factory.mktemp("exchanged")
    config = home / "config.json"
    config.write_text(json.dumps({"task": "tensor", "level": "L1", "dump_path": str(home / "run"), "step": [0]}))
    recorder = "--recorder", "probe_pytorch.debugger", "--config", str(config)
    distributed_training.launch("collectives", home / "out", "--steps", "1", *recorder)
    return home / "run"


class Said:
    """The command's words about a run: for each step the numbers, the named calls, the unchecked ones."""

    def __init__(self, text: str) -> None:
        self.kept: dict[str, int] = {}
        self.named: dict[str, list[tuple[int, str]]] = {}
        self.unchecked: dict[str, dict[str, int]] = {}
        step = ""
        for line in text.splitlines():
            if found := re.match(r"(?:(.*): )?([\d,]+) communication calls? of (\d+) ranks? checked, ([\d,]+) d", line):
                step = found[1] or ""
                self.kept[step] = int(found[2].replace(",", "")) - int(found[4].replace(",", ""))
                self.named[step], self.unchecked[step] = [], {}
            elif found := re.match(r"  rank (\d+): (.*)", line):
                self.named[step].append((int(found[1]), found[2]))
            elif found := re.match(r"  ([\d,]+) calls? not checked: (.*)", line):
                self.unchecked[step][found[2]] = int(found[1].replace(",", ""))


@pytest.fixture
def check(probe: Any, tmp_path: Path) -> Callable[..., Said]:
    """``check(run)``: what was said of it; a file is written where something is broken, and nowhere else."""

    def checked(run: Path, *options: str) -> Said:
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        assert probe("merge_result", "--check-collectives", run, "-o", out, *options) == 0, probe.err
        said = Said(probe.out)
        assert bool(any(said.named.values())) == out.is_dir() == ("wrote" in probe.out)
        return said

    return checked


def records(rank: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((rank / "dump.json").read_text("utf-8"))["data"]
    return {key: record for key, record in data.items() if API.match(key)}


def files_of(leaves: Any) -> list[str]:
    """The names of all tensor files below a part of a record."""
    if isinstance(leaves, list):
        return [name for leaf in leaves for name in files_of(leaf)]
    return [leaves["data_name"]] if isinstance(leaves, dict) and "data_name" in leaves else []


# -- runs that keep all laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["8.3.3", "26.2.0"])
@pytest.mark.parametrize("side", ["npu_dump", "bench_dump"])
@pytest.mark.parametrize("below", ["", "step0"])
def test_recorded_runs_keep_all_laws(version: str, side: str, below: str, runs: Any, check: Any) -> None:
    said = check(runs("tensor_L1_dist2", version) / side / below)
    (kept,) = said.kept.values()
    assert kept == 15 and said.named == {next(iter(said.named)): []} and not any(said.unchecked.values())


def test_a_training_that_calls_every_collective_keeps_all_laws(exchanged: Path, check: Any) -> None:
    said = check(exchanged)
    apis = Counter(API.match(key)[1] for key in records(exchanged / "step0" / "rank0"))
    assert apis.keys() >= {
        "all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter",
        "reduce_scatter_tensor", "all_to_all_single", "send", "recv", "isend", "irecv",
    }  # fmt: skip
    assert not any(said.named.values()) and not any(said.unchecked.values())
    silent = {"batch_isend_irecv", "send", "isend", "barrier", "all_gather_object"}
    ranks = [records(exchanged / "step0" / f"rank{rank}") for rank in range(2)]
    receiving = [key for one in ranks for key in one if API.match(key)[1] not in silent]
    to_root = sum(API.match(key)[1] in ("reduce", "gather") for key in ranks[1])
    assert said.kept["step0"] == len(receiving) - to_root


def test_sums_of_every_dtype_in_groups_keep_all_laws(live: Path, check: Any) -> None:
    said = check(live)
    assert said.named["step0"] == [] and said.unchecked["step0"] == {}
    assert said.kept["step0"] > 300


@pytest.mark.parametrize(
    "step",
    STEPS[1:],
    ids=lambda step: step.__name__,
)
def test_nobody_is_blamed_for_what_gloo_does(step: Any, live: Path, check: Any) -> None:
    assert check(live).named[f"step{STEPS.index(step)}"] == []


# -- faults in a process -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two ranks, each with a fault on the second rank."""
    out = tmp_path_factory.mktemp("faulty") / "runs"
    return parallel_training.launch(out, 2, ["communication", "receive"], ["tensor"], rank=1)


@pytest.mark.parametrize("fault, rank, api", [("communication", 1, "all_reduce"), ("receive", 1, "recv")])
def test_a_planted_fault_is_named_on_its_rank(fault: str, rank: int, api: str, check: Any, faulty: Path) -> None:
    """All that the process receives by this way is wrong, and nothing that others receive."""
    run = faulty / fault / "tensor"
    said = check(run)
    wrong = [key for key in records(run / "step0" / f"rank{rank}") if API.match(key)[1] == api]
    assert said.named["step0"] == [(rank, key) for key in wrong]
    assert FAULTS[fault] in wrong and said.kept["step0"] > 10 and not said.unchecked["step0"]


# -- what was spoilt on disk ---------------------------------------------------------------------------------------------


@pytest.fixture
def copy(runs: Any, tmp_path: Path) -> Path:
    """A step of two ranks that may be written to."""
    return Path(shutil.copytree(runs("tensor_L1_dist2", "26.2.0") / "npu_dump" / "step0", tmp_path / "copy"))


def spoil(path: Path, place: int = -1, by: float = 1.25) -> None:
    tensor = torch.load(path)
    tensor.view(-1)[place] += by
    torch.save(tensor, path)


RECEIVED = [
    (rank, f"Distributed.{call}.forward")
    for rank in (0, 1)
    for call in (
        "all_reduce.0", "all_gather.0", "all_gather_into_tensor.0", "broadcast.0", "all_reduce.1",
        "reduce_scatter_tensor.0", "all_to_all_single.0", "recv.0",
    )
    if (rank, call) != (0, "recv.0")
]  # fmt: skip


@pytest.mark.parametrize("rank, call", RECEIVED)
def test_one_value_that_is_spoilt_is_named(rank: int, call: str, copy: Path, check: Any) -> None:
    files = copy / f"rank{rank}" / "dump_tensor_data"
    name = files_of(records(copy / f"rank{rank}")[call]["output"][0])[0]
    spoil(files / name)
    said = check(copy)
    assert said.named[""] == [(rank, call)] and said.kept[""] == 14


@pytest.mark.parametrize("side", ["8.3.3", "26.2.0"])
def test_what_lies_in_a_buffer_before_says_nothing(side: str, runs: Any, check: Any, tmp_path: Path) -> None:
    run = shutil.copytree(runs("tensor_L1_dist2", side) / "npu_dump" / "step0", tmp_path / "copy")
    names = (
        "all_gather.0.forward.input.0.0",
        "recv.0.forward.input.0",
        "reduce_scatter_tensor.0.forward.input.0",
    )
    paths = [run / "rank1" / "dump_tensor_data" / f"Distributed.{name}.pt" for name in names]
    assert [path.is_file() for path in paths] == [side == "8.3.3"] * 3
    for path in filter(Path.is_file, paths):
        spoil(path, 0, 77.0)
    assert check(run).kept[""] == 15


def test_who_gave_something_else_makes_all_others_wrong(copy: Path, check: Any) -> None:
    """The record of what rank 0 gave is spoilt: what either rank received does not follow from it."""
    spoil(copy / "rank0" / "dump_tensor_data" / "Distributed.all_reduce.0.forward.input.0.pt")
    call = "Distributed.all_reduce.0.forward"
    assert check(copy).named[""] == [(0, call), (1, call)]


@pytest.mark.parametrize("format_", ["csv", "jsonl", "xlsx"])
def test_what_is_broken_is_written_in_the_format_asked_for(
    format_: str, copy: Path, probe: Any, tmp_path: Path
) -> None:
    spoil(copy / "rank1" / "dump_tensor_data" / "Distributed.recv.0.forward.output.0.pt")
    out = tmp_path / "new" / "out"
    assert probe("merge_result", "--check-collectives", copy, "-o", out, "--format", format_) == 0
    (path,) = out.iterdir()
    assert re.fullmatch(rf"collectives_check_\d{{14}}\.{format_}", path.name)
    assert f"wrote {path}" in probe.out and not probe.err
    if format_ == "xlsx":
        import openpyxl

        sheet = openpyxl.load_workbook(path).active
        rows = [list(row) for row in sheet.iter_rows(values_only=True)]
        assert rows[0] == ["Step", "Rank", "Call", "Should have received", "Received"]
        assert rows[1][1:4] == [1, "Distributed.recv.0.forward", "the values that rank 0 sent"]
        return
    text = path.read_text("utf-8")
    assert "Distributed.recv.0.forward" in text and "the values that rank 0 sent" in text
    assert "1 of 2 values is wrong; the worst, at flat index 1, is 2.25 instead of 1.0" in text
    assert len(text.splitlines()) == (2 if format_ == "csv" else 1)


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
@pytest.mark.parametrize("phase", ["input", "output"])
def test_a_tensor_that_cannot_be_read_costs_its_call(damage: str, phase: str, copy: Path, check: Any) -> None:
    """A missing input leaves the result of every rank unknown; a missing output cannot be held against it."""
    path = copy / "rank1" / "dump_tensor_data" / f"Distributed.all_reduce.0.forward.{phase}.0.pt"
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    said = check(copy)
    assert said.unchecked[""] == {"a tensor cannot be read": 2}
    assert said.kept[""] == 13 and not said.named[""]


def test_tensors_that_were_not_recorded_cost_their_call(copy: Path, check: Any) -> None:
    path = copy / "rank0" / "dump.json"
    path.write_text(path.read_text().replace('"Distributed.broadcast.0.forward.input.0.pt"', '"-1"'))
    said = check(copy)
    assert said.unchecked[""] == {"the data of tensors were not recorded": 2} and said.kept[""] == 13


def test_a_rank_that_is_missing_costs_the_calls_of_its_groups(live: Path, check: Any, tmp_path: Path) -> None:
    """Rank 2, which all calls in a group were made with."""
    run = tmp_path / "copy"
    shutil.copytree(live / "step0", run)
    for rank in (0, 1):
        path = run / f"rank{rank}" / "dump.json"
        document = json.loads(path.read_text("utf-8"))
        document["data"] = {key: one for key, one in records(path.parent).items() if "ProcessGroup" in json.dumps(one)}
        path.write_text(json.dumps(document))
    shutil.rmtree(run / "rank2")
    said = check(run)
    assert said.kept[""] == 0 and not said.named[""]
    assert set(said.unchecked[""]) == {
        "a rank of the group has no record of the call",
        "the matching send or receive is not known",
    }


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_is_missing_makes_no_other_wrong(lost: int, copy: Path, check: Any) -> None:
    shutil.rmtree(copy / f"rank{lost}")
    said = check(copy)
    assert said.kept[""] == 0 and not said.named[""] and sum(said.unchecked[""].values()) >= 7


# -- several steps, and what is no run -------------------------------------------------------------------------------------


def test_each_step_is_checked_by_itself(copy: Path, check: Any, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for step in (0, 2, 10):
        shutil.copytree(copy, root / f"step{step}")
    spoil(root / "step2" / "rank0" / "dump_tensor_data" / "Distributed.broadcast.0.forward.output.0.pt")
    said = check(root)
    assert list(said.kept.items()) == [("step0", 15), ("step2", 14), ("step10", 15)]
    assert said.named == {"step0": [], "step2": [(0, "Distributed.broadcast.0.forward")], "step10": []}


def refused(probe: Any, *arguments: str | Path) -> str:
    assert probe("merge_result", *arguments) == 2
    assert "Traceback" not in probe.err and len(probe.err.splitlines()) >= 2
    return str(probe.err)


@pytest.mark.parametrize("case", ["stat_mix_dist2", "md5_L1_dist2"])
def test_a_run_without_tensors_is_refused(case: str, runs: Any, probe: Any, tmp_path: Path) -> None:
    said = refused(probe, "--check-collectives", runs(case, "26.2.0") / "npu_dump", "-o", tmp_path / "o")
    assert "holds no tensors" in said and "task tensor" in said and not (tmp_path / "o").exists()


def test_what_is_no_run_is_refused(copy: Path, probe: Any, tmp_path: Path) -> None:
    assert "it does not exist" in refused(probe, "--check-collectives", tmp_path / "nowhere")
    assert "Results to merge are needed" in refused(probe, "-o", tmp_path)
    assert "without --config, a YAML file" in refused(probe, "-i", tmp_path, "--check-collectives", copy)
    (copy / "rank1" / "dump.json").write_text("{")
    assert "is not valid JSON" in refused(probe, "--check-collectives", copy)
    (copy / "rank1" / "dump.json").unlink()
    assert "There is no dump.json" in refused(probe, "--check-collectives", copy)


def test_an_output_that_is_a_file_is_refused(copy: Path, probe: Any, tmp_path: Path) -> None:
    spoil(copy / "rank1" / "dump_tensor_data" / "Distributed.recv.0.forward.output.0.pt")
    (tmp_path / "file").write_text("x")
    assert refused(probe, "--check-collectives", copy, "-o", tmp_path / "file").startswith("error: ")


def test_many_breaches_are_all_written_and_some_are_shown(copy: Path, probe: Any, tmp_path: Path) -> None:
    for rank, call in RECEIVED:
        for name in files_of(records(copy / f"rank{rank}")[call]["output"][0])[:1]:
            spoil(copy / f"rank{rank}" / "dump_tensor_data" / name)
    out = tmp_path / "o"
    assert probe("merge_result", "--check-collectives", copy, "-o", out, "--format", "jsonl") == 0
    assert "15 communication calls of 2 ranks checked, 15 delivered wrong values" in probe.out
    assert "  and 5 more" in probe.out
    (path,) = out.iterdir()
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert sorted((row["Rank"], row["Call"]) for row in rows) == sorted(RECEIVED)


def test_values_that_are_not_finite_are_told(copy: Path, probe: Any, tmp_path: Path) -> None:
    for number, value in enumerate((np.nan, np.inf)):
        spoil(copy / "rank1" / "dump_tensor_data" / "Distributed.broadcast.0.forward.output.0.pt", number, value)
    assert probe("merge_result", "--check-collectives", copy, "-o", tmp_path / "o") == 0
    assert "2 of 3 values are wrong; the worst, at flat index 0, is nan instead of 1.0" in probe.out
