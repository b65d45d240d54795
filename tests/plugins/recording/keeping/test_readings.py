"""The quantities of a step, read from leaves and from their JSON."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from probe_pytorch.values import TorchCollector
from probe_recording.keeping.readings import PHASES, QuantityKind, iterate_statistics, list_readings
from probe_recording.keeping.watched_values import MAX_OBSERVED_LOSSES, SeriesKind, collect_watched_values
from probe_recording.step_facts.step_phases import StepPhases

NAN, INF = math.nan, math.inf
CASES: dict[str, tuple[Any, float]] = {
    "float32": (torch.tensor([3.0, 4.0]), 5 / math.sqrt(2)),
    "float64": (torch.tensor([3.0, 4.0], dtype=torch.float64), 5 / math.sqrt(2)),
    "float16": (torch.tensor([3.0, 4.0], dtype=torch.float16), 5 / math.sqrt(2)),
    "bfloat16": (torch.tensor([3.0, 4.0], dtype=torch.bfloat16), 5 / math.sqrt(2)),
    "int64": (torch.tensor([3, 4]), 5 / math.sqrt(2)),
    "strided": (torch.arange(12.0).reshape(3, 4).t()[::2], math.sqrt(220 / 6)),
    "zero-d": (torch.tensor(-2.0), 2.0),
    "minus-zero": (torch.tensor([-0.0, -0.0]), 0.0),
    "nan": (torch.tensor([1.0, NAN]), INF),
    "inf": (torch.tensor([1.0, INF]), INF),
    "zero-d-nan": (torch.tensor(NAN), INF),
    "all-minus-inf": (torch.tensor([-INF, -INF]), INF),
    "mask": (torch.tensor([0.0, -INF]), NAN),
    "empty": (torch.zeros(0), NAN),
    "bool": (torch.tensor([True, False]), NAN),
    "complex": (torch.tensor([1 + 1j]), NAN),
    "complex-nan": (torch.tensor([complex(NAN, 0)]), INF),
    "huge": (torch.tensor([3e38, 3e38]), 3e38),
}


@pytest.mark.parametrize("encodes", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_size_is_the_root_mean_square(name: str, encodes: bool) -> None:
    tensor, expected = CASES[name]
    tree = TorchCollector(encodes=encodes).tree(tensor, "", None)
    (measured,) = iterate_statistics(tree)
    assert measured.size == pytest.approx(expected, rel=1e-6, nan_ok=True)
    step_phases = StepPhases()
    step_phases.add("batch").values["input.0"] = tree
    (reading,) = list_readings(step_phases, [])
    assert reading.size == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert reading.name.kind is QuantityKind.DATA


def leaf(value: Any) -> Any:
    return TorchCollector().tree(torch.as_tensor(value), "", None)


def test_readings_follow_the_order_of_a_step() -> None:
    step_phases = StepPhases()
    for phase in reversed(PHASES):
        if phase != "call":
            step_phases.add(phase).values["x"] = leaf([1.0])
    readings = list_readings(step_phases, [("Module.a.Linear.forward.0", [leaf([2.0]), None, leaf([3.0])])])
    assert [reading.name.phase for reading in readings if reading.name.phase != "call"] == [
        phase for phase in PHASES if phase != "call"
    ]
    calls = [reading.name.name for reading in readings if reading.name.phase == "call"]
    assert calls == ["Module.a.Linear.forward.0", "Module.a.Linear.forward.0.1"]
    order = list(QuantityKind)
    kinds = [order.index(reading.name.kind) for reading in readings]
    assert kinds == sorted(kinds)


def test_equal_names_of_two_backward_passes_are_two_quantities() -> None:
    step_phases = StepPhases()
    for size in (1.0, 2.0):
        step_phases.add("gradient").values["w"] = leaf([size])
    names = [reading.name for reading in list_readings(step_phases, [])]
    assert len(set(names)) == 2


def series(step_phases: StepPhases, passed: list[Any] | None = None) -> list[tuple[str, int, float]]:
    return [
        (value.kind.value, value.number, value.value) for value in collect_watched_values(step_phases, passed or [])
    ]


def test_losses_of_backward_passes_and_the_norm_of_what_the_optimizer_receives_are_watched() -> None:
    step_phases = StepPhases()
    step_phases.add("loss").values["loss.0"] = leaf(2.0)
    step_phases.add("loss").values["loss.0"] = leaf(-3.0)
    step_phases.add("applied").values.update(a=leaf([3.0]), b=leaf([4.0, 0.0]), missing=None)
    assert series(step_phases) == [("loss", 0, 2.0), ("loss", 1, -3.0), ("gradient_norm", 0, 5.0)]
    assert series(step_phases, [leaf(7.0)])[:2] == [("loss", 0, 7.0), ("gradient_norm", 0, 5.0)]


def test_the_norm_before_clipping_is_watched() -> None:
    step_phases = StepPhases()
    step_phases.add("clipped").values["total_norm"] = leaf(50.0)
    step_phases.add("applied").values["a"] = leaf([1.0])
    assert series(step_phases) == [("gradient_norm", 0, 50.0)]


def test_losses_are_divided_by_the_scale_of_a_gradient_scaler() -> None:
    step_phases = StepPhases()
    for scale, norm in ((1024.0, math.inf), (512.0, 2.0)):
        step_phases.add("loss").values["loss.0"] = leaf(3.0 * scale)
        step_phases.add("unscaled").values["scale"] = leaf(scale)
        step_phases.add("clipped").values["total_norm"] = leaf(norm)
    assert series(step_phases) == [("loss", 0, 3.0), ("loss", 1, 3.0), ("gradient_norm", 0, 2.0)]


def test_many_losses_are_watched_as_their_mean() -> None:
    step_phases = StepPhases()
    for number in range(MAX_OBSERVED_LOSSES + 1):
        step_phases.add("loss").values["loss.0"] = leaf(float(number))
    assert series(step_phases) == [("loss", 0, MAX_OBSERVED_LOSSES / 2)]


def test_gradients_that_are_not_finite_make_the_norm_nan() -> None:
    for value in (math.nan, math.inf, -math.inf):
        step_phases = StepPhases()
        step_phases.add("applied").values.update(a=leaf([1.0]), b=leaf([1.0, value]))
        ((kind, _, norm),) = series(step_phases)
        assert kind == SeriesKind.GRADIENT_NORM.value and math.isnan(norm)


def test_a_step_without_phases_has_no_values() -> None:
    assert series(StepPhases()) == [] and list_readings(None, []) == [] and collect_watched_values(None, []) == []
