"""``--match align`` on whole runs: recorded ones, live ones, and ones written by hand."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.measuring import PROPERTY
from support.runs.comparing import compare
from support.runs.recorded import scalar, tensor, write_run
from support.runs.recording import recording
from support.sampling import examples
from torch import Tensor, nn

from probe_core.model import Level
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager

Rows = list[dict[str, Any]]
Data = dict[str, Any]
SAME = [
    ("tensor_L1_edge", "8.3.3"), ("tensor_L0_nested", "8.3.3"), ("tensor_L1_mlp_bf16", "8.3.3"),
    ("tensor_L1_datamap", "8.3.3"), ("tensor_L1_fuzzy", "26.2.0"), ("stat_mix_fuzzy", "8.3.3"),
    ("stat_mix_fuzzy", "26.2.0"), ("stat_L0_nested", "26.2.0"), ("stat_L1_edge", "26.2.0"),
    ("md5_L1_edge", "8.3.3"), ("xor_L1_mlp_gelu", "26.2.0"), ("debug_stat", "8.3.3"), ("debug_tensor", "26.2.0"),
]  # fmt: skip
"""Recorded runs of every level, task and recorder."""
LIKE = [
    ("tensor_L0_nested", "26.2.0"), ("tensor_L1_mlp_bf16", "26.2.0"), ("stat_L1_mlp_fp16", "8.3.3"),
    ("stat_L0_nested", "8.3.3"), ("md5_L1_mlp_gelu", "8.3.3"), ("debug_stat", "26.2.0"), ("debug_tensor", "8.3.3"),
]  # fmt: skip
"""Recorded pairs whose runs make the same calls."""


def aligned(target: Path, golden: Path, matcher: str = "align", **fields: Any) -> tuple[Report, Rows]:
    """The report and the rows of two runs that hold one rank each."""
    with tempfile.TemporaryDirectory() as out:
        plan = Plan(target, golden, Path(out), "0", matcher=matcher, formats=("jsonl",), **fields)
        (report,) = compare(plan, Manager())
        (path,) = Path(out).glob("*compare_result*.jsonl")
        return report, [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def calls_of(rows: Rows) -> dict[str, str]:
    """The call of the golden that each call of the target stands beside, as far as both are there."""
    found: dict[str, str] = {}
    for row in rows:
        names = [
            re.sub(r"\.(input|output|kwargs|parameters)\..*", "", row[side]) for side in ("NPU Name", "Bench Name")
        ]
        if "N/A" not in names:
            assert found.setdefault(*names) == names[1]
    return found


def suspects(report: Report) -> list[str]:
    return [suspect.op for suspect in report.suspects]


# -- recorded runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["8.3.3", "26.2.0"])
def test_every_pair_of_the_shifted_run_is_the_right_one(version: str, runs: Any) -> None:
    """The oldest tool's rule: what does not match is skipped until both sides line up again."""
    base = runs("tensor_L1_fuzzy", version)
    report, rows = aligned(base / "npu_dump", base / "bench_dump")
    shift = {"relu": 1, "add": 1}
    for target, golden in calls_of(rows).items():
        scope, name, number, phase = target.split(".")
        assert golden == f"{scope}.{name}.{int(number) - shift.get(name, 0)}.{phase}"
    wanted = {
        *(f"Torch.relu.{number}.{phase}" for number in (1, 2) for phase in ("forward", "backward")),
        *(f"Torch.add.1.{phase}" for phase in ("forward", "backward")),
        *(f"Functional.linear.{number}.{phase}" for number in (0, 1) for phase in ("forward", "backward")),
        *(f"{name}.0.{phase}" for name in ("Torch.mul", "Tensor.sum") for phase in ("forward", "backward")),
    }
    assert set(calls_of(rows)) - {"Torch.ones_like.0.forward"} == wanted
    assert [*report.regions] == [
        "inserted: Torch.relu.0.forward, Torch.add.0.forward",
        "missing: Torch.mul.1.forward",
    ]
    assert report.level is Level.WARNING and not report.suspects
    assert report.counts.levels[Level.ERROR] == report.counts.levels[Level.WARNING] == 0
    verdicts = {row["Accuracy Reached or Not"] for row in rows}
    assert verdicts == {"Yes", "None"}


@pytest.mark.parametrize("version", ["8.3.3", "26.2.0"])
def test_statistics_of_modules_and_calls_line_up(version: str, runs: Any) -> None:
    base = runs("stat_mix_fuzzy", version)
    report, rows = aligned(base / "npu_dump", base / "bench_dump")
    found = calls_of(rows)
    assert found["Torch.relu.2.backward"] == "Torch.relu.1.backward"
    assert found["Module.l2.Linear.forward.0"] == "Module.l2.Linear.forward.0"
    assert found["Torch.add.1.forward"] == "Torch.add.0.forward"
    assert [text.partition(":")[0] for text in report.regions] == ["inserted", "missing"]
    assert not report.suspects and report.level is Level.WARNING


@pytest.mark.parametrize("case, version", SAME)
@pytest.mark.parametrize("side", ["npu_dump", "bench_dump"])
def test_a_run_is_in_line_with_itself(case: str, version: str, side: str, runs: Any) -> None:
    run = runs(case, version) / side / "step0"
    report, rows = aligned(run, run)
    assert not report.regions and not report.suspects
    assert report.counts.matched == report.row_count and report.level is not Level.ERROR
    assert all(row["NPU Name"] == row["Bench Name"] for row in rows)
    assert rows == aligned(run, run, "exact")[1]


@pytest.mark.parametrize("case, version", LIKE)
def test_runs_of_the_same_calls_pair_as_by_name(case: str, version: str, runs: Any) -> None:
    """Whatever differs between them, all rows are as they are without alignment."""
    sides = [runs(case, version) / side / "step0" for side in ("npu_dump", "bench_dump")]
    report, rows = aligned(*sides)
    exact, same = aligned(*sides, "exact")
    assert not report.regions and rows == same
    assert suspects(report) == suspects(exact)


def test_the_console_says_what_does_not_line_up(runs: Any, probe: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_fuzzy")
    sides = base / "npu_dump", base / "bench_dump"
    assert probe("compare", *sides, "--match", "align", "-o", tmp_path / "o", "--format", "xlsx,csv,jsonl") == 0
    assert "calls that could not be aligned, in 2 places:" in probe.out
    assert probe.out.startswith("AGREE: equal in all 40 values that both runs recorded; 8 further values ")
    assert "    inserted: Torch.relu.0.forward, Torch.add.0.forward\n" in probe.out
    assert "    missing: Torch.mul.1.forward\n" in probe.out


def test_regions_are_worth_a_warning(runs: Any, probe: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_fuzzy")
    target, golden = base / "npu_dump", base / "bench_dump"
    options = "--match", "align", "--format", "csv", "-o", tmp_path
    assert probe("compare", target, golden, *options, "--fail-on", "warning") == 1
    assert probe("compare", target, golden, *options, "--fail-on", "error") == 0
    assert probe("compare", target, target, *options, "--fail-on", "warning") == 0


def csv_of(probe: Any, out: Path, *arguments: str | Path) -> bytes:
    assert probe("compare", *arguments, "--match", "align", "--format", "csv", "-o", out) == 0, probe.err
    (path,) = out.glob("compare_result*.csv")
    return path.read_bytes()


def test_processes_write_the_same_bytes(runs: Any, probe: Any, tmp_path: Path) -> None:
    """Regions at the front, in the middle and at the end of chunks, as both sides have their own."""
    target, golden = {}, {}
    for number in range(60):
        value = 1.0 + number / 50
        if number % 7 == 0:
            target |= op(f"Torch.new.{number}", [value], [value])
        if number % 5 == 0:
            golden |= op(f"Torch.old.{number}", [value], [value])
        target |= op(f"Torch.relu.{number + 3}", [value], [value + 0.01])
        golden |= op(f"Torch.relu.{number}", [value], [value + 0.01])
    base = runs("tensor_L1_fuzzy")
    hand = write_run(tmp_path / "t", target), write_run(tmp_path / "g", golden)
    for number, sides in enumerate((hand, (base / "npu_dump", base / "bench_dump"))):
        here = csv_of(probe, tmp_path / f"here{number}", *sides)
        said = [line for line in probe.out.splitlines() if ":" in line and "wrote" not in line][2:]
        there = csv_of(probe, tmp_path / f"there{number}", *sides, "--executor", "processes", "--jobs", "2")
        assert here == there and here.count(b"\n") > 40
        assert all(line in probe.out for line in said) and said


# -- runs written by hand ----------------------------------------------------------------------------------------


def op(key: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Data:
    """A forward call with statistics; a number is a tensor that holds it, an array one that holds its values."""
    sides = [[_leaf(item) for item in side] for side in (inputs, outputs)]
    return {f"{key}.forward": {"input_args": sides[0], "input_kwargs": {}, "output": sides[1]}}


def _leaf(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        statistics = item.max(), item.min(), item.mean(), np.linalg.norm(item)
        numbers = dict(zip(("Max", "Min", "Mean", "Norm"), map(float, statistics)))
        return tensor(list(item.shape), dtype=f"Float{item.itemsize * 8}", **numbers)
    return tensor(value=item) if isinstance(item, float) else item


def write_tensors(directory: Path, calls: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    """A run with data and the statistics of it."""
    files = directory / "dump_tensor_data"
    files.mkdir(parents=True)
    data: Data = {}
    for key, sides in calls.items():
        data |= op(key, *sides)
        record = data[f"{key}.forward"]
        for side, items, leaves in zip(("input", "output"), sides, (record["input_args"], record["output"])):
            for number, item in enumerate(items):
                if isinstance(item, np.ndarray):
                    leaves[number]["data_name"] = f"{key}.forward.{side}.{number}.npy"
                    np.save(files / leaves[number]["data_name"], item)
    path = write_run(directory, data, task="tensor")
    path.write_text(path.read_text().replace("pytorch", "mindspore"))
    return path


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


X, Y = (np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32) for seed in (1, 2))
WEIGHT = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
Calls = dict[str, tuple[list[Any], list[Any]]]


def fused(x: Any = X, factor: float = 1.0) -> Calls:
    """One call where ``plain`` makes two; what comes out is wrong by a factor."""
    out = (silu(x) * Y * factor).astype(np.float32)
    return {"Torch.start.0": ([X], [x]), "NPU.npu_swiglu.0": ([x, Y], [out]), **after(out)}


def plain(x: Any = X, factor: float = 1.0) -> Calls:
    inner = silu(x)
    out = (inner * Y * factor).astype(np.float32)
    return {
        "Torch.start.0": ([X], [x]),
        "Functional.silu.0": ([x], [inner]),
        "Tensor.__mul__.0": ([inner, Y], [out]),
        **after(out),
    }


def after(out: Any) -> Calls:
    return {
        "Functional.linear.0": ([out, WEIGHT], [out @ WEIGHT]),
        "Torch.relu.0": ([out @ WEIGHT], [np.abs(out)]),
    }


CHANGED = "changed: {} for {}"
TWO, ONE = "Functional.silu.0.forward, Tensor.__mul__.0.forward", "NPU.npu_swiglu.0.forward"


def written(directory: Path, calls: Calls, task: str) -> Path:
    if task == "tensor":
        return write_tensors(directory, calls)
    data = {key: record for name, sides in calls.items() for key, record in op(name, *sides).items()}
    return write_run(directory, data)


by_task = pytest.mark.parametrize("task", ["tensor", "statistics"])


@by_task
@pytest.mark.parametrize("turned", [False, True], ids=["2:1", "1:2"])
def test_fused_calls_that_agree_are_no_suspects(task: str, turned: bool, tmp_path: Path) -> None:
    sides = [plain(), fused()][:: -1 if turned else 1]
    report, rows = aligned(*(written(tmp_path / name, calls, task) for name, calls in zip("tg", sides)))
    assert [*report.regions] == [CHANGED.format(*(ONE, TWO) if turned else (TWO, ONE))]
    assert not report.suspects and report.level is Level.WARNING
    assert report.counts.levels[Level.ERROR] == 0
    lonely = [row for row in rows if "N/A" in (row["NPU Name"], row["Bench Name"])]
    assert len(lonely) == 2, "what lies between the two calls"
    assert report.counts.levels[Level.SKIP] >= len(lonely)


@by_task
@pytest.mark.parametrize("turned", [False, True], ids=["2:1", "1:2"])
def test_fused_calls_that_differ_are_suspect_at_their_end(task: str, turned: bool, tmp_path: Path) -> None:
    sides = (fused(factor=9.0), plain()) if turned else (plain(factor=9.0), fused())
    report, _ = aligned(*(written(tmp_path / name, calls, task) for name, calls in zip("tg", sides)))
    assert suspects(report)[0] == (ONE if turned else "Tensor.__mul__.0.forward")
    assert "calls that could not be aligned" in report.suspects[0].why
    assert report.suspects[0].row.endswith("forward.output.0")
    assert len(report.suspects) == 1, "what takes its output in is no other finding"


@by_task
def test_fused_calls_behind_a_fault_are_not_blamed(task: str, tmp_path: Path) -> None:
    target, golden = plain(X * 7), fused()
    report, _ = aligned(written(tmp_path / "t", target, task), written(tmp_path / "g", golden, task))
    assert suspects(report) == ["Torch.start.0.forward"]


@pytest.mark.parametrize("turned", [False, True], ids=["2:1", "1:2"])
def test_fused_calls_behind_a_drift_are_not_blamed(turned: bool, tmp_path: Path) -> None:
    """Inputs of a region are noted with one of its calls, outputs with another."""
    x = (X * 1.0003).astype(np.float32)
    sides = (fused(x), plain()) if turned else (plain(x), fused())
    report, _ = aligned(*(written(tmp_path / name, calls, "tensor") for name, calls in zip("tg", sides)))
    assert report.counts.levels[Level.ERROR] == 0
    assert suspects(report) == ["Torch.start.0.forward"]


def region_without_known_inputs(x: Any, is_target: bool) -> Calls:
    """A region whose ends agree, and one where both sides take in other shapes."""
    calls: Calls = {"Torch.start.0": ([X], [X])}
    calls["Torch.a.0" if is_target else "Torch.b.0"] = ([X], [X + 1])
    calls["Torch.middle.0"] = ([X], [x])
    calls["Torch.c.0" if is_target else "Torch.d.0"] = ([x.reshape(2, 16) if is_target else x], [x * 2])
    return {**calls, "Torch.end.0": ([x * 2], [x * 2])}


@by_task
def test_a_region_does_not_inherit_the_inputs_of_an_earlier_one(task: str, tmp_path: Path) -> None:
    """Behind a fault, a region of whose inputs nothing is known gives out what differs."""
    target, golden = (region_without_known_inputs(*side) for side in ((X * 7, True), (X, False)))
    report, _ = aligned(written(tmp_path / "t", target, task), written(tmp_path / "g", golden, task))
    assert report.regions[-1] == CHANGED.format("Torch.c.0.forward", "Torch.d.0.forward")
    assert suspects(report)[0] == "Torch.middle.0.forward"
    assert not any("none of their compared inputs" in one.why for one in report.suspects)


def test_a_long_region_is_one_line(tmp_path: Path) -> None:
    same = op("Torch.same.0", [1.0], [1.0])
    many = {key: call for n in range(40) for key, call in op(f"Torch.new.{n}", [2.0 + n], [2.0 + n]).items()}
    report, rows = aligned(write_run(tmp_path / "t", same | many), write_run(tmp_path / "g", same))
    (text,) = report.regions
    assert text.startswith("inserted: Torch.new.0.forward, Torch.new.1.forward, ") and text.endswith("and 34 more")
    assert report.counts.levels[Level.SKIP] == 80 and len(rows) == 82


def test_checksums_line_up(tmp_path: Path) -> None:
    def summed(name: str, *texts: str) -> Data:
        leaves = [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "md5": text} for text in texts]
        return {f"{name}.forward": {"input_args": leaves[:1], "input_kwargs": {}, "output": leaves[1:]}}

    texts = ["aa", "bb", "cc", "dd", "ee"]
    golden = {
        k: v for n, pair in enumerate(itertools.pairwise(texts)) for k, v in summed(f"Torch.relu.{n}", *pair).items()
    }
    extra = ["11", *texts]
    target = {
        k: v for n, pair in enumerate(itertools.pairwise(extra)) for k, v in summed(f"Torch.relu.{n}", *pair).items()
    }
    report, rows = aligned(write_run(tmp_path / "t", target), write_run(tmp_path / "g", golden))
    assert [*report.regions] == ["inserted: Torch.relu.0.forward"] and not report.suspects
    assert all(row["Result"] == "Pass" for row in rows if row["Bench Name"] != "N/A")
    target["Torch.relu.3.forward"]["output"][0]["md5"] = "wrong"
    report, _ = aligned(write_run(tmp_path / "t", target), write_run(tmp_path / "g", golden))
    assert suspects(report)[0] == "Torch.relu.3.forward" and [*report.regions] == ["inserted: Torch.relu.0.forward"]


@settings(PROPERTY, max_examples=examples(40))
@given(
    st.lists(st.sampled_from(["relu", "add", "linear"]), min_size=3, max_size=12),
    st.data(),
)
def test_a_fault_is_named_while_calls_are_shifted(names: list[str], data: Any) -> None:
    """A chain of calls: all that follows the fault differs. Both sides have calls of their own in between."""
    fault = data.draw(st.integers(0, len(names) - 1))
    sides: list[Data] = []
    keys: list[str] = []
    for side in "tg":
        counts = dict.fromkeys(names, 0) if side == "g" else {name: data.draw(st.integers(0, 2)) for name in names}
        calls: Data = {}
        for number, name in enumerate(names):
            for extra in range(data.draw(st.sampled_from([0, 0, 1, 2]))):
                calls |= op(f"Torch.{side}{number}.{extra}", [float(number + 40)], [float(number + 60)])
            value = 1.0 + number + (100.0 if side == "t" and number > fault else 0)
            out = 2.0 + number + (100.0 if side == "t" and number >= fault else 0)
            key = f"Torch.{name}.{counts[name]}"
            counts[name] += 1
            calls |= op(key, [value], [out])
            if side == "t" and number == fault:
                keys.append(f"{key}.forward")
        sides.append(calls)
    with tempfile.TemporaryDirectory() as directory:
        paths = [write_run(Path(directory) / side, calls) for side, calls in zip("tg", sides)]
        report, _ = aligned(*paths)
    assert suspects(report)[:1] == keys


# -- live runs ---------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A layer that may call relu once more than it needs, or count by another factor."""

    def __init__(self, extra: bool = False, factor: float = 1.5) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.extra, self.factor = extra, factor

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.linear(x))
        if self.extra:
            x = torch.relu(x + 0.125) - 0.125
        return torch.tanh(torch.mul(x, self.factor)) + 0.5


class OtherBlock(Block):
    """The same by another name."""


class Model(nn.Module):
    def __init__(self, blocks: Iterable[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.sum()


GOLDEN: Callable[[], list[Block]] = lambda: [Block() for _ in range(4)]  # noqa: E731
TASKS: dict[str, dict[str, Any]] = {
    "tensor": {"task": "tensor"},
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
}


def record(path: Path, blocks: Sequence[Block], task: str = "tensor", level: str = "mix", half: bool = False) -> Path:
    model = Model(blocks)
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random) / 2)
    x = torch.randn(5, 6, generator=random)
    if half:
        model, x = model.half(), x.half()
    with recording(path, level=level, **TASKS[task]) as found:
        found.start(model)
        model(x).backward()
        found.stop()
        found.step()
    return path


def shifted(factor: float = 1.5) -> list[Block]:
    """The second block calls relu, add and sub once more; the last one may be wrong."""
    return [OtherBlock(), OtherBlock(extra=True), OtherBlock(), OtherBlock(factor=factor)]


EXTRA = {"Torch.relu.2", "Tensor.__add__.1", "Tensor.__sub__.0"}


def inserted(report: Report) -> set[str]:
    """The calls that only the target has, without their phase; nothing may be missing or changed."""
    assert all(text.startswith("inserted: ") for text in report.regions)
    names = ", ".join(text.removeprefix("inserted: ") for text in report.regions).split(", ")
    return {name.rpartition(".")[0] for name in names}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_live_run_lines_up(task: str, level: str, tmp_path: Path) -> None:
    target = record(tmp_path / "t", shifted(), task, level)
    report, rows = aligned(target, record(tmp_path / "g", GOLDEN(), task, level))
    assert inserted(report) == EXTRA
    found = calls_of(rows)
    for number, other in ((0, 0), (1, 1), (3, 2), (4, 3)):
        for phase in ("forward", "backward"):
            assert found[f"Torch.relu.{number}.{phase}"] == f"Torch.relu.{other}.{phase}"
    if level == "mix":
        assert found["Module.blocks.2.OtherBlock.forward.0"] == "Module.blocks.2.Block.forward.0"
        assert found["Module.blocks.2.OtherBlock.backward.0"] == "Module.blocks.2.Block.backward.0"
    if task != "md5":  # adding and taking away rounds, which every bit shows
        assert not report.suspects and report.counts.levels[Level.ERROR] == 0


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_fault_in_a_live_run_is_named_while_calls_are_shifted(task: str, level: str, tmp_path: Path) -> None:
    target = record(tmp_path / "t", shifted(factor=1.75), task, level)
    report, _ = aligned(target, record(tmp_path / "g", GOLDEN(), task, level))
    assert inserted(report) == EXTRA
    why = {one.op: one.why for one in report.suspects}
    told = "was called with a different argument (other, input.1: 1.75 against 1.5) and returns values that differ"
    assert why["Torch.mul.3.forward"].startswith(told)
    if task != "md5":
        assert next(iter(why)) == "Torch.mul.3.forward"


@pytest.mark.parametrize("task", TASKS)
def test_modules_alone_line_up_whatever_their_class(task: str, tmp_path: Path) -> None:
    target = record(tmp_path / "t", [OtherBlock() for _ in range(5)], task, "L0")
    report, rows = aligned(target, record(tmp_path / "g", GOLDEN(), task, "L0"))
    found = calls_of(rows)
    for number in range(4):
        assert found[f"Module.blocks.{number}.OtherBlock.forward.0"] == f"Module.blocks.{number}.Block.forward.0"
    names = inserted(report)
    assert {"Module.blocks.4.OtherBlock.forward", "Module.blocks.4.linear.Linear.backward"} <= names
    assert all(name.startswith("Module.blocks.4.") for name in names)


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_half_precision_lines_up_with_single(task: str, level: str, tmp_path: Path) -> None:
    golden = record(tmp_path / "g", GOLDEN(), task, level)
    report, rows = aligned(record(tmp_path / "same", GOLDEN(), task, level, half=True), golden)
    assert not report.regions and all(own.replace("Other", "") == other for own, other in calls_of(rows).items())
    report, rows = aligned(record(tmp_path / "more", shifted(), task, level, half=True), golden)
    assert inserted(report) == EXTRA
    assert calls_of(rows)["Torch.tanh.3.backward"] == "Torch.tanh.3.backward"


def test_a_model_that_is_wrapped_lines_up(tmp_path: Path) -> None:
    """All calls of a block stand one module deeper."""

    class Wrapper(Block):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Sequential(self.linear)  # type: ignore[assignment]

    target = record(tmp_path / "t", [Wrapper(), *GOLDEN()[1:]])
    report, rows = aligned(target, record(tmp_path / "g", GOLDEN()))
    found = calls_of(rows)
    assert {key for key in found if key.startswith("Functional.linear")} == {
        f"Functional.linear.{number}.{phase}" for number in range(4) for phase in ("forward", "backward")
    }
    assert all("linear" in text for text in report.regions) and report.regions
    assert not report.suspects


def test_scalars_of_another_kind_are_a_change_and_are_judged(tmp_path: Path) -> None:
    start = op("Torch.start.0", [1.0], [1.0])
    target = start | op("Torch.mul.0", [1.0, scalar(2)], [2.0])
    golden = start | op("Torch.mul.0", [1.0, scalar(2.0)], [2.0])
    report, _ = aligned(write_run(tmp_path / "t", target), write_run(tmp_path / "g", golden))
    assert not report.suspects and report.counts.levels[Level.ERROR] == 0


def test_another_argument_is_named_whatever_its_kind(tmp_path: Path) -> None:
    """A changed argument, ``x * 2`` for ``x * 1.5``, is the fault and no other call."""
    start = op("Torch.start.0", [1.0], [1.0])
    target = start | op("Torch.mul.0", [1.0, scalar(2)], [2.0])
    golden = start | op("Torch.mul.0", [1.0, scalar(1.5)], [1.5])
    report, _ = aligned(write_run(tmp_path / "t", target), write_run(tmp_path / "g", golden))
    assert suspects(report) == ["Torch.mul.0.forward"] and not report.regions
    told = "was called with a different argument (other, input.1: 2 against 1.5) and returns values that differ"
    assert report.suspects[0].why.startswith(told)
    assert report.answer is not None
    assert report.answer.causes[0].evidence["argument"] == "Torch.mul.0.forward.input.1"
