"""The cause that all matrix products of a run are computed in a lower precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugins.diagnosis.precision.test_recomputation import rounded
from probe_diagnosis.precision.precision_settings import load_settings
from support.runs.answered import Calls, answered, back, call, compared, normal, record

LAYERS = 4


def model(bits: int = 0, *, wrong: int = -1, added: float = 0.0, layers: int = LAYERS) -> Calls:
    """Return the calls of layers that receive the same input each, like the projections of attention."""
    x = normal(16, 64)
    calls: Calls = {}
    for number in range(layers):
        w = normal(48, 64, seed=number + 1)
        low = bits if wrong in (-1, number) else 0
        factors = [rounded(value, low) if low else value.astype(float) for value in (x, w)]
        y = (factors[0] @ factors[1].T).astype(np.float32)
        calls[f"Functional.linear.{number}.forward"] = call(x, w, out=y)
        calls[f"Functional.relu.{number}.forward"] = call(y, out=np.maximum(y, 0) + np.float32(added))
    return calls


def with_precise_product(calls: Calls) -> Calls:
    """Return the calls behind an outer product, which kernels of lower precision do not support."""
    left, right = normal(16, 1, seed=90), normal(1, 12, seed=91)
    return {"Tensor.__matmul__.0.forward": call(left, right, out=(left @ right).astype(np.float32)), **calls}


def with_modules(calls: Calls) -> Calls:
    """Return the calls with a module in front, whose product cannot be computed again."""
    linear = calls["Functional.linear.0.forward"]
    return {"Module.first.Linear.forward.0": linear, **calls}


def first(report: Any) -> Any:
    return report.answer.causes[0]


@pytest.mark.parametrize("name", ["bfloat16", "TF32", "HF32"])
@pytest.mark.parametrize("side", [0, 1])
def test_tensors_show_which_run_rounds(tmp_path: Path, name: str, side: int) -> None:
    runs = [model(load_settings().formats[name]), model()]
    report = answered(tmp_path, runs[side], runs[1 - side])
    assert first(report).op == "conditions.precision"
    run = ("target", "golden")[side]
    bits = load_settings().formats[name]
    clause = f"matrix products of the {run} round their inputs to {name} (by about 2^-{bits} in 4 calls"
    assert clause in report.answer.sentence
    assert first(report).evidence["run"] == run
    assert [cause.op for cause in report.answer.causes] == ["conditions.precision"]


@pytest.mark.parametrize("name", ["bfloat16", "TF32"])
def test_statistics_show_that_one_run_rounds(tmp_path: Path, name: str) -> None:
    report = answered(tmp_path, model(load_settings().formats[name]), model(), "statistics")
    assert first(report).op == "conditions.precision"
    assert "as if one run rounded their inputs to" in report.answer.sentence
    assert name in report.answer.sentence
    assert "run" not in first(report).evidence


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_the_first_of_many_products_need_not_be_computed_again(tmp_path: Path, task: str) -> None:
    count = 3 * load_settings().recomputed
    runs = [with_modules(model(bits, layers=count)) for bits in (load_settings().formats["TF32"], 0)]
    report = answered(tmp_path, *runs, task)
    assert [cause.op for cause in report.answer.causes] == ["conditions.precision"]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_products_that_are_precise_in_both_runs_show_nothing(tmp_path: Path, task: str) -> None:
    runs = [with_precise_product(model(bits)) for bits in (load_settings().formats["TF32"], 0)]
    report = answered(tmp_path, *runs, task)
    assert [cause.op for cause in report.answer.causes] == ["conditions.precision"]
    assert first(report).evidence["calls"] == LAYERS


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("wrong", range(LAYERS))
def test_one_product_that_rounds_is_accused_itself(tmp_path: Path, task: str, wrong: int) -> None:
    report = answered(tmp_path, model(8, wrong=wrong), model(), task)
    assert first(report).op == f"Functional.linear.{wrong}.forward"


def test_a_fault_that_the_rounding_does_not_explain_comes_first(tmp_path: Path) -> None:
    report = answered(tmp_path, model(11, added=0.5), model())
    ops = [cause.op for cause in report.answer.causes]
    assert (ops[0], ops[-1]) == ("Functional.relu.0.forward", "conditions.precision")


def test_a_fault_that_the_rounding_does_not_explain_comes_first_in_statistics(tmp_path: Path) -> None:
    report = answered(tmp_path, model(11, added=0.5), model(), "statistics")
    assert first(report).op == "Functional.relu.0.forward"


def test_a_small_difference_beyond_the_rounding_comes_second(tmp_path: Path) -> None:
    report = answered(tmp_path, model(11, added=0.1), model())
    ops = [cause.op for cause in report.answer.causes]
    assert ops[:2] == ["conditions.precision", "Functional.relu.0.forward"]


def test_a_fault_before_the_products_comes_first(tmp_path: Path) -> None:
    runs = [{"Torch.exp.0.forward": call(normal(4), out=normal(4) + np.float32(wrong)), **model(bits)}
            for wrong, bits in ((1, 11), (0, 0))]  # fmt: skip
    report = answered(tmp_path, *runs)
    assert first(report).op == "Torch.exp.0.forward"


def test_products_that_are_wrong_by_another_amount_are_accused(tmp_path: Path) -> None:
    target = model()
    for number in range(LAYERS):
        target[f"Functional.linear.{number}.forward"]["output"][0] *= np.float32(1.01)
    report = answered(tmp_path, target, model(), "tensor")
    assert first(report).op == "Functional.linear.0.forward"


def model_with_gradients(bits: int = 0) -> Calls:
    """Return the calls of a layer whose backward pass alone rounds its inputs."""
    x, w, y = normal(16, 64), normal(48, 64, seed=1), normal(16, 48, seed=2)
    calls: Calls = {"Functional.linear.0.forward": call(x, w, out=(x.astype(float) @ w.T).astype(np.float32))}
    factors = [rounded(value, bits) if bits else value.astype(float) for value in (y, w, x)]
    gradients = [factors[0] @ factors[1], factors[0].T @ factors[2]]
    calls["Functional.linear.0.backward"] = back(y, [gradient.astype(np.float32) for gradient in gradients])
    return calls


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("devices", [{"cuda": "a GPU"}, {}])
def test_a_setting_of_a_device_explains_gradients(tmp_path: Path, task: str, devices: dict[str, str]) -> None:
    paths = [
        record(tmp_path / side, model_with_gradients(bits), task)
        for side, bits in (("t", load_settings().formats["TF32"]), ("g", 0))
    ]
    for path, facts in zip(paths, (devices, {})):
        conditions = {"devices": facts, "numerics": {"cudnn_allow_tf32": True}}
        (path.parent / "conditions.json").write_text(
            json.dumps({"schema": 1, "facts": conditions, "random": [], "batch": {}, "draws": []})
        )
    report = compared(tmp_path, *paths)
    assert first(report).op == ("conditions.precision" if devices else "Functional.linear.0.backward")
