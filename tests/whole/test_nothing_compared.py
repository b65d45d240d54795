"""Comparisons of nothing: they do not read as success, and pass no gate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import probe_metrics.hooks
import probe_ranks.hooks
import probe_reporters.hooks
import pytest
from probe_ranks.api import run_plan
from support.runs.answer_files import read_answer
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

from probe_core.model import Level, Measurement
from probe_core.model.measure import OpenPair
from probe_core.model.plan import Plan
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import MetricSpec
from probe_core.testing import manager_of

FINISHED, FOUND, MISTAKE = 0, 1, 2
AN_ARRAY = np.arange(4, dtype=np.float32)


class Fails:
    """A metric that raises on every row, or on the first one only."""

    def __init__(self, rows: int) -> None:
        self._left = rows

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        self._left -= 1
        if self._left >= 0:
            raise RuntimeError("no licence")
        return [Measurement(1.0)]


def hooks(rows: int) -> ModuleType:
    module = ModuleType(f"probe_fails_{rows}")

    @hookimpl
    def probe_metrics() -> list[MetricSpec]:
        return [MetricSpec("broken", "fails", lambda: Fails(rows), ("Broken",))]

    module.probe_metrics = probe_metrics  # type: ignore[attr-defined]
    return module


def tensors(directory: Path) -> Path:
    calls = {f"Torch.{name}.0.forward": ([AN_ARRAY], [AN_ARRAY]) for name in "ab"}
    return write_tensor_run(directory, calls)


def compared(tmp_path: Path, manager: Manager, fail_on: Level | None, *metrics: str, **more: Any) -> int:
    runs = [tensors(tmp_path / side) for side in ("t", "g")]
    plan = Plan(runs[0], runs[1], tmp_path / "o", "20260101000000", formats=("csv",), metrics=metrics, **more)
    return run_plan(plan, manager, fail_on)


@pytest.fixture
def manager() -> Iterator[Any]:
    def make(rows: int) -> Manager:
        import probe_mindspore.hooks

        module = hooks(rows)
        return manager_of(
            metrics=probe_metrics.hooks,
            ranks=probe_ranks.hooks,
            reporters=probe_reporters.hooks,
            mindspore=probe_mindspore.hooks,
            broken=module,
        )

    yield make


@pytest.mark.parametrize(
    ("rows", "fail_on", "code"),
    [(99, None, FINISHED), (99, Level.ERROR, MISTAKE), (1, Level.ERROR, FINISHED)],
)
def test_a_metric_that_fails_on_every_row(
    tmp_path: Path,
    manager: Any,
    capsys: pytest.CaptureFixture[str],
    rows: int,
    fail_on: Level | None,
    code: int,
) -> None:
    """It says so with its error; one that fails on some rows stays a cell."""
    assert compared(tmp_path, manager(rows), fail_on, "broken") == code
    said = capsys.readouterr().err
    text = 'The metric "broken" of broken failed on all 4 rows that it was to measure'
    assert (text in said and "RuntimeError: no licence" in said) is (rows == 99)
    assert ("--fail-on cannot be judged" in said) is (code == MISTAKE)


def test_a_metric_that_applies_to_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = {"Torch.a.0.forward": ([np.arange(3)], [np.arange(3)])}
    runs = [write_tensor_run(tmp_path / side, calls) for side in ("t", "g")]
    plan = Plan(runs[0], runs[1], tmp_path / "o", "20260101000000", formats=("csv",), metrics=("ulp",))
    assert run_plan(plan, Manager(), Level.ERROR) == MISTAKE
    assert 'The metric "ulp" of probe-metrics' in (said := capsys.readouterr().err) and "measured no row" in said
    assert run_plan(plan, Manager()) == FINISHED


@pytest.mark.parametrize("analyze", [False, True])
def test_runs_of_which_no_row_can_be_measured(probe: Any, tmp_path: Path, analyze: bool) -> None:
    """Tensors without data files: not one row was measured, and that is no agreement."""
    data = {"Torch.a.0.forward": forward(tensor(Max=None, Min=None, Mean=None, Norm=None))}
    runs = [write_run(tmp_path / side, data, task="tensor") for side in ("t", "g")]
    options = ["-da"] if analyze else []
    assert probe("compare", *runs, "-o", tmp_path / "o", "--fail-on", "error", *options) == MISTAKE
    assert "No tensor was compared: the only row could not be measured" in probe.err
    assert "NPU does not have data file" in probe.err
    assert probe.out.startswith("NOT COMPARABLE: the target's only floating-point tensor could not be ")
    assert (
        "AGREE" not in probe.out
        and " within rounding" not in probe.out
        and " none " not in probe.out.partition("\n")[2]
    )
    assert "no difference beyond rounding" not in probe.out
    answer = read_answer(tmp_path / "o")
    assert (answer["verdict"], answer["causes"]) == ("NOT COMPARABLE", [])
    assert (answer["coverage"]["recorded"], answer["coverage"]["compared"]) == (1, 0)
    assert ("no value could be judged" in probe.err) is analyze
    assert probe("compare", *runs, "-o", tmp_path / "p", *options) == MISTAKE
    for value, code in (("suspect", MISTAKE), ("warning", FOUND), ("incomplete", MISTAKE)):
        assert probe("compare", *runs, "-o", tmp_path / "q", "--fail-on", value, *options) == code
    if not analyze:
        (advice,) = (tmp_path / "o").glob("advisor_*.txt")
        assert "Expert Advice: No value was compared" in advice.read_text("utf-8")


@pytest.mark.parametrize("analyze", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_tensors_of_one_side_are_gone(probe: Any, tmp_path: Path, ranks: int, analyze: bool) -> None:
    """Nothing of what is left differs, and yet that is neither agreement nor passes a gate."""
    for rank in range(ranks):
        runs = [tensors(tmp_path / side / f"rank{rank}") for side in ("t", "g")]
        for path in list((runs[1].parent / "dump_tensor_data").glob("*.npy"))[:-1] if not rank else ():
            path.unlink()
    options = ["-da"] if analyze else []
    for fail_on in ((), *(("--fail-on", value) for value in ("warning", "error", "suspect", "incomplete"))):
        out = tmp_path / "o" / "".join(fail_on)
        code = probe("compare", tmp_path / "t", tmp_path / "g", "-o", out, *options, *fail_on)
        assert code == (FOUND if fail_on else FINISHED), probe.err
        assert re.match("(CANNOT TELL|NOT COMPARABLE): ", probe.out)
        answer = read_answer(out)
        assert answer["verdict"] != "AGREE" and not answer["causes"]
        (step,) = answer["steps"]
        assert [rank["verdict"] for rank in step["ranks"]] == [answer["verdict"], "AGREE"][:ranks]
        assert answer["next"] == ["Copy or record the missing tensor files again, and compare again."]


def test_a_gate_that_is_reached_wins(probe: Any, tmp_path: Path) -> None:
    one, other = (
        write_run(tmp_path / side, {"Torch.a.0.forward": forward(tensor(), scalar(value))})
        for side, value in (("t", 1), ("g", 2))
    )
    assert probe("compare", one, other, "-o", tmp_path / "o", "--fail-on", "error") == FOUND


def test_xors_of_zero_and_requires_grad_are_told(probe: Any, tmp_path: Path) -> None:
    """The table of checksums has no messages, so the summary says it; the labels stay."""
    zero = "0x0000000000000000"
    runs = []
    for side, grad in (("t", True), ("g", False)):
        leaves = [tensor(md5=zero), tensor(md5=zero), tensor(md5="0x01", requires_grad=grad)]
        runs.append(write_run(tmp_path / side, {"Torch.a.0.forward": forward(*leaves)}))
    assert probe("compare", *runs, "-o", tmp_path / "o", "--fail-on", "error", "--format", "jsonl") == FINISHED
    assert "0 fail, 1 to check, 0 pass, 2 not measured" in probe.out
    assert "2 rows, such as Torch.a.0.forward.input.0: The xor is zero on both sides" in probe.out
    assert "1 row, such as Torch.a.0.forward.input.2: Requires_grad inconsistent." in probe.out
    assert probe("compare", *runs, "-o", tmp_path / "p", "--fail-on", "warning") == FOUND
    only = [write_run(tmp_path / f"z{side}", {"Torch.a.0.forward": forward(tensor(md5=zero))}) for side in "tg"]
    assert probe("compare", *only, "-o", tmp_path / "q", "--fail-on", "error") == MISTAKE
    assert "No tensor was compared" in probe.err


@pytest.mark.parametrize(("fail_on", "code"), [((), FINISHED), (("--fail-on", "error"), MISTAKE)])
def test_collectives_of_a_run_without_any(probe: Any, tmp_path: Path, fail_on: Any, code: int) -> None:
    for rank in (0, 1):
        tensors(tmp_path / f"step0/rank{rank}")
    assert probe("merge_result", "--check-collectives", tmp_path / "step0", "-o", tmp_path / "o", *fail_on) == code
    assert "nothing was checked on 2 ranks: the run holds no communication calls" in probe.err


def test_a_gate_without_a_check_is_a_mistake(probe: Any, tmp_path: Path) -> None:
    arguments = ("-i", tmp_path, "-config", tmp_path / "c.yaml", "--fail-on", "error")
    assert probe("merge_result", *arguments) == MISTAKE
    assert "--fail-on needs --check-collectives" in probe.err


@pytest.mark.parametrize(("fail_on", "code"), [((), FINISHED), (("--fail-on", "error"), MISTAKE)])
def test_a_precheck_of_calls_that_are_all_skipped(probe: Any, tmp_path: Path, fail_on: Any, code: int) -> None:
    run = write_run(tmp_path / "t", {"Torch.no_such_api.0.forward": forward(tensor(), output=[tensor()])})
    assert probe("run_ut", "-api_info", run, "-o", tmp_path / "o", "-d", "cpu", *fail_on) == code
    assert "Nothing was checked: the only call was skipped" in probe.err
    assert ("--fail-on cannot be judged" in probe.err) is bool(fail_on)
