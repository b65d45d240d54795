"""Pre-check on MindSpore itself: rebuilding, both modes, forms of backward, reasons for skipping calls."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import mint, ops
from probe_mindspore.precheck import device
from probe_mindspore.precheck.random_arrays import create_generator, draw_array
from probe_mindspore.precheck.tensors import Arguments, TensorArgument
from probe_precheck.model import Array, Outputs, Result, Skipped, Status
from probe_precheck.rebuild import Unbuildable
from probe_precheck.runner_options import RunnerOptions
from probe_precheck.settings import Settings
from support.on_mindspore.mint_checks import Checks, texts
from support.on_mindspore.mint_record import D, Recording, T, V

from probe_core.errors import UserError

PASS, ERROR, SKIP = Status.PASS, Status.ERROR, Status.SKIP
X, Y = T(4, 6), T(4, 6, seed=1)


def leaf(dtype: str, shape: list[int], low: Any, high: Any, **more: Any) -> dict[str, Any]:
    return {"type": "mindspore.Tensor", "dtype": dtype, "shape": shape, "Max": high, "Min": low, **more}


def written(directory: Path, data: dict[str, Any]) -> Checks:
    path = directory / "dump.json"
    header = {"task": "statistics", "level": "L1", "framework": "mindspore", "dump_data_dir": None}
    path.write_text(json.dumps({**header, "data": data}), "utf-8")
    return Checks(path)


def forward(*arguments: Any, **keywords: Any) -> dict[str, Any]:
    return {"input_args": list(arguments), "input_kwargs": keywords, "output": []}


def arrays(outputs: Any) -> tuple[Array, Array]:
    assert isinstance(outputs, Outputs), outputs
    return outputs.bench, outputs.device


# -- random tensors --------------------------------------------------------------------------------


def drawn(dtype: str, low: Any, high: Any, shape: tuple[int, ...] = (50,), place: str = "a", **more: Any) -> Any:
    return draw_array({"Min": low, "Max": high, **more}, dtype, shape, create_generator(1234, place))


def test_each_tensor_has_a_seed_of_its_own_and_keeps_it() -> None:
    one, other = drawn("Float32", -1.0, 1.0), drawn("Float32", -1.0, 1.0, place="b")
    assert np.array_equal(one, drawn("Float32", -1.0, 1.0)) and not np.array_equal(one, other)


def test_all_integers_of_the_range_come_up() -> None:
    assert set(drawn("Int32", 3, 6, (400,))[1:-1].tolist()) == {3, 4, 5, 6}
    assert drawn("UInt8", 0, 255, (4000,))[1:-1].max() == 255
    assert drawn("Int64", -(2**63), 2**63 - 1).dtype == np.int64


@pytest.mark.parametrize(
    "low, high, found", [(False, False, {False}), (True, True, {True}), (False, True, {False, True})]
)
def test_truth_values_follow_what_was_recorded(low: bool, high: bool, found: set[bool]) -> None:
    assert set(drawn("Bool", low, high).tolist()) == found


def test_extremes_inf_and_nan_come_back() -> None:
    values = drawn("Float32", -3.0, 5.0)
    assert (values[0], values[-1]) == (-3, 5) and np.all((values >= -3) & (values <= 5))
    values = drawn("Float32", -1.0, math.inf)
    assert values[-1] == math.inf and np.isfinite(values[:-1]).all() and values.dtype == np.float32
    values = drawn("Float32", -math.inf, math.inf)
    assert values[0] == -math.inf and values[-1] == math.inf and np.isfinite(values[1:-1]).all()
    assert np.isnan(drawn("Float32", math.nan, math.nan)).all()
    values = drawn("Float16", math.nan, math.nan, Max_except_inf_nan=2.0, Min_except_inf_nan=-1.0)
    assert np.isnan(values[1]) and (values[0], values[-1]) == (-1, 2)


def test_bfloat16_is_rounded_and_nothing_is_made_of_nothing() -> None:
    values = drawn("BFloat16", -1.0, 1.0)
    assert values.dtype == np.float32 and not (values.view(np.uint32) & 0xFFFF).any()
    assert drawn("Float32", None, None, (0, 3)).shape == (0, 3)
    with pytest.raises(Unbuildable, match="were not recorded"):
        drawn("Float32", None, None)
    with pytest.raises(Unbuildable, match="not supported for random"):
        drawn("Complex64", 0, 1)


# -- rebuilding ------------------------------------------------------------------------------------


def test_arguments_come_back_as_they_were(tmp_path: Path) -> None:
    checks = written(tmp_path, {"Mint.thing.0.forward": forward(
        leaf("Float32", [2], 0.0, 1.0), [leaf("Int64", [3], 0, 4), {"type": "int", "value": 2}], None,
        {"type": "slice", "value": [0, 4, 2]}, {"type": "mindspore.dtype", "value": "mindspore.float16"},
        {"type": "str", "value": "mean"}, at=leaf("Bool", [2], False, True))})  # fmt: skip
    call = checks.calls.get_call(0, Settings())
    found = checks.runner._rebuilder.rebuild_arguments(call)
    assert [made.dtype for made in found.tensors] == ["Float32", "Int64", "Bool"]
    assert found.positional[1][1] == 2 and found.positional[2] is None
    assert found.positional[3] == slice(0, 4, 2) and found.positional[4] == D("Float16")
    assert found.positional[5] == "mean" and found.keywords["at"].place == "Mint.thing.0.forward.kwargs.at"


def test_indices_fit_and_do_not_depend_on_what_was_recorded(tmp_path: Path) -> None:
    index = leaf("Int64", [2, 3], -5, 99)
    checks = written(tmp_path, {
        "Mint.gather.0.forward": forward(leaf("Float32", [4, 3], -1.0, 1.0), {"type": "int", "value": 0}, index),
        "Mint.scatter.0.forward": forward(leaf("Float32", [4, 3], -1.0, 1.0), {"type": "int", "value": 0}, index,
                                          leaf("Float32", [2, 3], -1.0, 1.0)),
        "MintFunctional.nll_loss.0.forward": forward(leaf("Float32", [4, 3], -1.0, 1.0), leaf("Int64", [4], -7, 7)),
    })  # fmt: skip
    assert {name: found.forward for name, found in checks.all().items()} == dict.fromkeys(checks.calls.names, PASS)


# -- backward --------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize(
    "api, arguments, keywords, gradients",
    [
        ("Mint.add", (X, Y), {}, 2),
        ("Mint.add", (X,), {"other": Y}, 2),
        ("Mint.cat", ((X, Y, X), 1), {}, 3),
        ("Mint.split", (X, 2, 1), {}, 1),
        ("Mint.max", (X, 1), {}, 1),
        ("Mint.where", (T(4, 6, dtype="Bool"), X, Y), {}, 2),
        ("MintFunctional.linear", (X, T(3, 6)), {"bias": T(3)}, 3),
        ("Tensor.add_", (X, Y), {}, 2),
        ("Tensor.mul", (X, Y), {}, 2),
        ("Functional.softmax", (X,), {"axis": 1}, 1),
        ("Functional.cross_entropy", (X, V([0, 5, 2, 1], "Int32")), {}, 1),
    ],
)
def test_backward_of_tensors_in_any_place(
    api: str, arguments: tuple[Any, ...], keywords: dict[str, Any], gradients: int, task: str, tmp_path: Path
) -> None:
    recording = Recording(tmp_path, task)
    name = recording.call(api, *arguments, keywords=keywords)
    result = Checks(recording.write()).result(name)
    assert set(result.statuses) == {PASS}, texts(result)
    rows = [detail.name for detail in result.details if ".backward." in detail.name]
    assert rows == [f"{name}.backward.output.{i}" for i in range(gradients)]


NO_GRADIENT = (
    "Functional.kl_div",
    "Functional.hinge_embedding_loss",
    "MintFunctional.binary_cross_entropy_with_logits",
    "Tensor.__setitem__",
)
"""Arguments without a gradient; MindSpore 2.10.0 loses that of kl_div's target on a CPU."""


@pytest.mark.parametrize(
    ("api", "positional"),
    [
        ("Functional.cross_entropy", (X, V([0, 5, 2, 1], "Int32"), None, -100, "sum", 0.1)),
        ("Functional.mse_loss", (X, T(4, 6, seed=1), "sum")),
        ("Functional.l1_loss", (X, T(4, 6, seed=1), "none")),
        ("Functional.smooth_l1_loss", (X, T(4, 6, seed=1), 0.5, "sum")),
        ("Functional.kl_div", (X, T(4, 6, low=0.1, high=0.9), "sum")),
        ("Functional.leaky_relu", (X, 0.3)),
        ("Functional.gelu", (X, "tanh")),
        ("Functional.group_norm", (T(2, 4, 3), 2)),
        ("Functional.cumsum", (X, 1)),
        ("Functional.equal", (X, X)),
        ("Functional.hinge_embedding_loss", (X, V(np.where(np.arange(24).reshape(4, 6) % 3, 1.0, -1.0)))),
        ("Tensor.__setitem__", (X, 1, V([1.0] * 6))),
        ("Functional.round", (X,)),
        ("Functional.ones", ((2, 3), D("Float32"))),
        ("Functional.smooth_l1_loss", (X, T(4, 6, seed=1))),
        ("Functional.nan_to_num", (V([1.0, np.inf, -np.inf, np.nan]),)),
        (
            "MintFunctional.binary_cross_entropy_with_logits",
            (X, T(4, 6, low=0.0, high=1.0), T(4, 6, seed=2), "sum"),
        ),
        ("Functional.cast", (X, D("Int32"))),
        ("Tensor.astype", (X, "float64")),
        ("Tensor.swapaxes", (T(2, 3, 4), 1, 2)),
        ("Tensor.transpose", (T(2, 3, 4), 0, 2, 1)),
        ("Tensor.transpose", (T(2, 3, 4), (0, 2, 1))),
        ("Tensor.transpose", (T(2, 3, 4), 1, 2)),
    ],
)
def test_arguments_by_position_mean_what_mindspore_means(api: str, positional: tuple[Any, ...], tmp_path: Path) -> None:
    recording = Recording(tmp_path)

    name = recording.call(api, *positional, backward=api not in NO_GRADIENT)
    found = Checks(recording.write()).result(name)
    assert set(found.statuses) == {PASS}, texts(found)


def test_gradients_agree_with_finite_differences() -> None:
    """Finite differences show that both sides are not wrong in the same way."""
    values = np.linspace(0.5, 2.0, 6, dtype=np.float32).reshape(2, 3)
    made = [TensorArgument(values, "Float32", "a"), TensorArgument(values[::-1].copy(), "Float32", "b")]
    ones = TensorArgument(np.ones((2, 3), np.float32), "Float32")
    found = device.run_backward(mint.mul, "mul", Arguments((made[0],), {"other": made[1]}), [ones], 0)
    assert [np.allclose(one.values, other.values) for one, other in zip(found, reversed(made))] == [
        True,
        True,
    ]


def test_a_lost_gradient_of_a_list_is_an_error(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    name = recording.call("Mint.cat", (X, Y))
    dump = recording.write()
    result = Checks(dump, {"Mint.cat": lambda t: mint.cat((t[0], ops.stop_gradient(t[1])))}).result(name)
    assert (result.forward, result.backward, result.standard) == (PASS, ERROR, ERROR)


# -- real data -------------------------------------------------------------------------------------


def tensor_run(directory: Path) -> tuple[str, Path]:
    recording = Recording(directory, "tensor")
    return recording.call("Mint.mul", X, Y), recording.write()


def test_the_recorded_output_is_tested_and_run_again(tmp_path: Path) -> None:
    name, dump = tensor_run(tmp_path)
    right = Checks(dump).result(name)
    assert set(right.statuses) == {PASS} and "run again here they are the same" in texts(right)
    path = tmp_path / "dump_tensor_data" / f"{name}.forward.output.0.npy"
    np.save(path, np.load(path) * np.float32(1.5))
    wrong = Checks(dump).result(name)
    assert (wrong.forward, wrong.backward, wrong.standard) == (ERROR, PASS, ERROR)
    assert "NOT REPRODUCED HERE" in texts(wrong)
    broken = Checks(dump, {"Mint.mul": lambda x, y: mint.norm(x)}).result(name)
    assert "could not be run again here: The kernel LinalgVectorNorm unregistered" in texts(broken)


def test_the_recorded_gradient_is_tested(tmp_path: Path) -> None:
    name, dump = tensor_run(tmp_path)
    path = tmp_path / "dump_tensor_data" / f"{name}.backward.output.1.npy"
    np.save(path, np.ascontiguousarray(np.load(path).T).reshape(4, 6))  # strides lost, as in the real bug
    result = Checks(dump).result(name)
    assert (result.forward, result.backward) == (PASS, ERROR)
    assert [one.name for one in result.details if one.status is ERROR] == [f"{name}.backward.output.1"]


@pytest.mark.parametrize("kept", [[0, None], [None, 1], [None, None]])
def test_gradients_that_were_not_recorded(kept: list[Any], tmp_path: Path) -> None:
    name, dump = tensor_run(tmp_path)
    run = json.loads(dump.read_text())
    outputs = run["data"][f"{name}.backward"]["output"]
    run["data"][f"{name}.backward"]["output"] = [None if at is None else outputs[at] for at in kept]
    dump.write_text(json.dumps(run))
    result = Checks(dump).result(name)
    assert result.backward is PASS, texts(result)
    rows = [one.status for one in result.details if ".backward." in one.name]
    assert rows == ([PASS, PASS] if kept == [None, None] else [SKIP if at is None else PASS for at in kept])


def test_gradients_by_position_alone(tmp_path: Path) -> None:
    """Msprobe records no gradients of keyword arguments."""
    recording = Recording(tmp_path, "tensor")
    name = recording.call("Mint.add", X, keywords={"other": Y})
    recording.data[f"{name}.backward"]["output"].pop()
    result = Checks(recording.write()).result(name)
    assert result.backward is PASS, texts(result)


def test_files_that_are_missing_or_of_another_shape(tmp_path: Path) -> None:
    name, dump = tensor_run(tmp_path)
    path = tmp_path / "dump_tensor_data" / f"{name}.forward.input.0.npy"
    np.save(path, np.zeros(3, np.float32))
    assert "has shape [3] where [4, 6] was recorded" in texts(Checks(dump).result(name))
    path.unlink()
    result = Checks(dump).result(name)
    assert result.forward is SKIP and f"there is no {path.name}" in texts(result)


# -- what is skipped -------------------------------------------------------------------------------

ONE = leaf("Float32", [2, 3], -1.0, 1.0)


@pytest.mark.parametrize(
    "name, says",
    [
        ("Primitive.conv2d.Conv2D.0", "Primitive is not run alone: what a primitive was built with"),
        ("Cell.fc.Dense.0", "A Cell is not run alone"),
        ("Distributed.all_reduce.0", "Distributed APIs are not supported"),
        ("MintDistributed.all_reduce.0", "collectives need other ranks"),
        ("Jit.net.0", "Jit is not run alone"),
        ("Mint.no_such_api.0", "Mint.no_such_api is not there in MindSpore"),
        ("Mint.empty_like.0", "its output is uninitialised memory"),
        ("Mint.norm.0", "MindSpore cannot run it on this device: The kernel LinalgVectorNorm unregistered"),
        ("Tensor.std.0", "another default"),
        ("Functional.fused_thing.0", "is not there in MindSpore"),
        ("Functional.intopk.0", "No counterpart of Functional.intopk is known in torch"),
        ("Mint.matmul.0", "torch does not take the arguments"),
        ("What.add.0", "What is not run alone: no reference is known for it"),
        ("a.b.c.d.e.0", "not support for run ut"),
    ],
)
def test_reasons(name: str, says: str, tmp_path: Path) -> None:
    found: Result = written(tmp_path, {f"{name}.forward": forward(ONE), "Mint.neg.0.forward": forward(ONE)}).result(
        name
    )
    assert found.forward is SKIP and says in texts(found), texts(found)


def test_an_error_belongs_to_the_call_that_made_it(tmp_path: Path) -> None:
    """Kernels run asynchronously by default, and their errors are raised by a later call."""
    checks = written(tmp_path, {"Mint.norm.0.forward": forward(ONE), "Mint.neg.0.forward": forward(ONE)})
    found = checks.all()
    assert found["Mint.norm.0"].forward is SKIP and found["Mint.neg.0"].forward is PASS


def test_backward_that_the_device_cannot_run_leaves_the_forward(tmp_path: Path) -> None:
    data = {
        "MintFunctional.softplus.0.forward": forward(ONE),
        "MintFunctional.softplus.0.backward": {"input": [ONE], "output": [ONE]},
    }
    outcome = written(tmp_path, data).outcome("MintFunctional.softplus.0")
    assert isinstance(outcome.forward, Outputs) and isinstance(outcome.backward, Skipped)
    assert "SoftplusGradExt" in outcome.backward.message and "node:" not in outcome.backward.message


def test_the_reference_is_raised(tmp_path: Path) -> None:
    half = leaf("Float16", [8], 0.1, 1.0)
    outcome = written(tmp_path, {"Mint.sqrt.0.forward": forward(half)}).outcome("Mint.sqrt.0")
    bench, tested = arrays(outcome.forward)
    assert (bench.dtype, tested.dtype) == ("Float64", "Float16") and bench.values.dtype == np.float64


# -- saving, devices -------------------------------------------------------------------------------


def test_saved_data_and_script(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    name = recording.call("Mint.mul", X, keywords={"other": Y})
    dump = recording.write()
    checks = Checks(dump, {"Mint.mul": lambda x, other: mint.mul(x, other) * 2})
    checks.runner.open(RunnerOptions(dump, error_directory=tmp_path))
    call = checks.calls.get_call(0, Settings())
    script = checks.runner.save(call, checks.outcome(name))
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd="/").stdout
    assert f"tested {name}.forward.output.device.0: shape (4, 6), max abs error" in said
    again = next(line for line in said.splitlines() if line.startswith("again"))
    assert float(again.partition("max abs error ")[2].partition(",")[0]) < 1e-6


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UserError, match="There is no accelerator here for device 0"):
        device.select_device("0")
    assert device.select_device("cpu") == "CPU"
