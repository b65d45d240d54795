"""The effect on loss and gradients decides between rounding and a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import answered, back, call, compared, normal, record

from probe_core.model.answers import Answer

X, Y, Z, NOISE = (normal(4096, seed=number) for number in range(4))
A, B, LOSS = "Torch.a.0.forward", "Torch.b.0.forward", "Functional.mse_loss.0.forward"
BACK, GRADIENT = "Functional.mse_loss.0.backward", "Module.m.Linear.parameters_grad"
ROUNDING = 64 * 2.0**-23
ENDING = ", but the loss and the gradients of parameters that follow agree within rounding"


def off(array: Any, times: float) -> Any:
    """Values that are so many times what rounding explains off."""
    return (array + np.float32(times * ROUNDING) * NOISE).astype(np.float32)


def run(introduced: float = 0.0, loss: float = 0.0, gradient: float = 0.0, **more: Any) -> Any:
    """A step whose second call introduces a difference."""
    value = off(Y, introduced)
    return {
        A: call(X, out=X), B: call(X, out=value), LOSS: call(value, out=off(X, loss)), BACK: back(X, Z),
        GRADIENT: {"weight": [off(Z, gradient)]}, **more,
    }  # fmt: skip


def answer(directory: Path, target: Any, golden: Any, task: str = "tensor") -> Answer:
    found = answered(directory, target, golden, task).answer
    assert found is not None
    return found


def test_a_small_difference_that_reaches_neither_is_rounding(tmp_path: Path) -> None:
    found = answer(tmp_path, run(4), run())
    assert found.outcome.value == "AGREE", found.sentence
    assert not found.causes
    (note,) = found.notes
    assert note.text.startswith(f"{B} returns values that differ, although its inputs agree (")
    assert note.text.endswith(ENDING)


@pytest.mark.parametrize("reached", [{"loss": 3.0}, {"gradient": 3.0}])
def test_one_that_reaches_either_is_not(reached: dict[str, float], tmp_path: Path) -> None:
    found = answer(tmp_path, run(4, **reached), run())
    assert found.outcome.value == "DIVERGED"
    assert found.causes[0].op == B


def test_a_large_difference_is_no_rounding(tmp_path: Path) -> None:
    assert answer(tmp_path, run(15), run()).outcome.value == "DIVERGED"


def test_neither_is_one_that_a_larger_one_follows(tmp_path: Path) -> None:
    later = "Torch.c.0.backward"
    target, golden = (run(size, **{later: back(X, off(Z, 3 * size))}) for size in (6, 0))
    assert answer(tmp_path, target, golden).outcome.value == "DIVERGED"


def test_without_what_follows_nothing_is_shown(tmp_path: Path) -> None:
    """The loss was computed before the backward pass, so that it says nothing of that."""
    target = run() | {BACK: back(X, off(Z, 4))}
    assert answer(tmp_path / "1", target, run()).outcome.value == "AGREE"
    for one in (target, golden := run()):
        del one[GRADIENT]
    assert answer(tmp_path / "2", target, golden).outcome.value == "DIVERGED"


def test_another_argument_is_no_rounding(tmp_path: Path) -> None:
    target, golden = ({**run(), B: call(X, eps, out=off(Y, size))} for eps, size in ((1e-5, 4), (1e-6, 0)))
    found = answer(tmp_path, target, golden)
    assert found.causes[0].op == B
    assert found.causes[0].evidence["argument_values"] == "1e-05 against 1e-06"


def test_statistics_do_not_show_it(tmp_path: Path) -> None:
    assert answer(tmp_path, run(60), run(), "statistics").outcome.value != "AGREE"


def grown(times: float, calls: int = 40) -> Any:
    """Calls that each add a little, up to so many times what rounding explains; the last is the loss."""
    values = [off(Y, times * n / calls) for n in range(calls + 1)]
    return {f"Torch.f{n}.0.forward": call(values[n], out=values[n + 1]) for n in range(calls)}


def test_what_grew_and_reaches_the_loss(tmp_path: Path) -> None:
    found = answer(tmp_path / "1", grown(40, 120), grown(0, 120))
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert "no single call explains it" in cause.reason.detail
    assert cause.evidence["reaches"] == "Torch.f119.0.forward.output.0"
    assert cause.evidence["reaches_times"] == pytest.approx(40, rel=0.2)
    found = answer(tmp_path / "2", grown(4), grown(0))
    assert found.outcome.value == "CANNOT TELL"
    assert found.next[-1].endswith("compare with --baseline and that run.")


def test_what_grew_and_vanished_again(tmp_path: Path) -> None:
    target, golden = ({**grown(size), LOSS: call(off(Y, size), out=X)} for size in (4, 0))
    found = answer(tmp_path, target, golden)
    assert found.outcome.value == "AGREE", found.sentence
    assert found.notes[0].text.endswith(ENDING)


# -- values that the program states about itself -----------------------------------------------------------

MEDIAN, MEAN = "Tensor.median.0.forward", "Tensor.mean.0.forward"


def timed(seconds: Any, **more: Any) -> Any:
    """A step behind which the program states how long it took."""
    return {
        **run(),
        MEDIAN: call(seconds, out=seconds[:1]),
        MEAN: call(seconds, out=seconds.mean()[None]),
        **more,
    }


def with_phases(directory: Path, after: float) -> None:
    """Write what the optimizer left beside the records of a run."""
    leaf = {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": after, "Min": -after, "Mean": 0.0,
        "Norm": after,
    }  # fmt: skip
    step_phases = [
        {"phase": phase, "number": 0, "stack": [], "facts": {"optimizer": "AdamW"}, "values": {"w": leaf}}
        for phase in ("applied", "parameters_after")
    ]
    content = {"schema": 2, "framework": "pytorch", "not_captured": {}, "phases": step_phases}
    (directory / "step_phases.json").write_text(json.dumps(content))


def timed_answer(directory: Path, target: Any, golden: Any, after: tuple[float, float] | None) -> Answer:
    paths = [record(directory / side, calls) for side, calls in (("t", target), ("g", golden))]
    for path, size in zip(paths, after or ()):
        with_phases(path.parent, size)
    found = compared(directory, *paths).answer
    assert found is not None
    return found


def test_the_duration_of_a_step_is_no_cause(tmp_path: Path) -> None:
    found = timed_answer(tmp_path, timed(X[:3]), timed(Y[:3]), (1.0, 1.0))
    assert found.outcome.value == "AGREE", found.sentence
    assert found.notes[0].op == MEDIAN


@pytest.mark.parametrize("after", [None, (1.0, 2.0)])
def test_it_is_one_unless_the_parameters_are_known_to_agree(tmp_path: Path, after: tuple[float, float] | None) -> None:
    found = timed_answer(tmp_path, timed(X[:3]), timed(Y[:3]), after)
    assert found.outcome.value == "DIVERGED"


def test_a_value_that_another_call_takes_in_is_none_of_them(tmp_path: Path) -> None:
    """Its result may be written anywhere."""
    runs = [timed(one[:3], **{"Tensor.mul.0.forward": call(one[:3] * 2, out=one[:3])}) for one in (X, Y)]
    for one, seconds in zip(runs, (X, Y)):
        one["Tensor.add.0.forward"] = call(seconds.mean()[None], out=seconds[:1] * 3)
    assert timed_answer(tmp_path, *runs, (1.0, 1.0)).outcome.value == "DIVERGED"


def test_a_value_that_hides_its_difference_is_none_of_them(tmp_path: Path) -> None:
    """A permutation agrees in its statistics, and what follows may differ by it."""
    runs = [timed(one[:3], **{"Torch.stack.0.forward": call(one[4:6], out=Z)}) for one in (X, Y)]
    assert timed_answer(tmp_path, *runs, (1.0, 1.0)).outcome.value == "DIVERGED"
