"""Correct calls of mint pass, and planted errors fail, in every dtype that the CPU has kernels for."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import DATA

pytest.importorskip("mindspore")

import mindspore as ms
from mindspore import mint, ops
from probe_mindspore import PrecisionDebugger
from probe_mindspore.precheck import device
from probe_mindspore.precheck.tensors import Arguments, DType, TensorArgument, iterate_leaves, map_leaves
from probe_precheck.calls import get_api_name
from probe_precheck.model import Status
from support.on_mindspore.mint_calls import CALLS
from support.on_mindspore.mint_checks import Checks, texts
from support.on_mindspore.mint_record import Recording, T, V, typed

F = mint.nn.functional
ALL = 0.95
PASS, ERROR, SKIP = Status.PASS, Status.ERROR, Status.SKIP


def supported() -> set[str]:
    """Return the APIs whose forward runs on a CPU in float32 with MindSpore 2.10.0."""
    with (DATA / "mindspore_cpu_support.csv").open(encoding="utf-8") as file:
        found = {row["api"] for row in csv.DictReader(file) if row["fwd_210"] == "ok"}
    places = {"mint": "Mint.", "F": "MintFunctional.", "special": "Mint.special."}
    names = {f"{places[scope]}{name}" for scope, _, name in (api.partition(".") for api in found) if scope in places}
    return names - {"Mint.empty", "Mint.empty_like"}  # which compute nothing


def test_the_calls_are_those_that_run_here() -> None:
    assert {one.api for one in CALLS} == supported()


def recorded(directory: Path, task: str, dtype: str) -> Path:
    recording = Recording(directory, task, dtype)
    for one in CALLS:
        try:
            recording.call(one.api, *one.positional, keywords=one.keywords, backward=one.backward)
        except (RuntimeError, TypeError, ValueError):  # no kernel for the dtype
            assert dtype != "Float32", one
    return recording.write()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_correct_calls_pass_both_judgements(task: str, tmp_path: Path, probe: Callable[..., int]) -> None:
    dump = recorded(tmp_path, task, "Float32")
    assert probe("run_ut", "--framework", "mindspore", "-api_info", dump, "-o", tmp_path / "out") == 0
    (path,) = (tmp_path / "out").glob("accuracy_checking_result_*.csv")
    with path.open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(CALLS)
    failed = [row for row in rows if not all(
        row[key].strip() in ("pass", "") for key in ("Forward Test Success", "Backward Test Success", "Standard")
    )]  # fmt: skip
    assert len(failed) <= (1 - ALL) * len(rows), failed
    errors = {row["API Name"] for row in failed if "error" in row.values()}
    assert errors <= {"Mint.real.0"}, failed  # whose gradient is complex in MindSpore 2.10.0


@pytest.mark.parametrize("dtype, least", [("Float16", 180), ("BFloat16", 65)])
def test_the_standard_passes_correct_calls_in_16_bits(dtype: str, least: int, tmp_path: Path) -> None:
    results = Checks(recorded(tmp_path, "statistics", dtype)).all()
    counts = Counter(result.standard for result in results.values())
    assert counts[PASS] >= least
    assert not [texts(result) for result in results.values() if result.standard is ERROR]


# -- planted errors --------------------------------------------------------------------------------


def narrow(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes in float16."""
    return lambda x, *more, **keywords: function(x.astype(ms.float16), *more, **keywords).astype(ms.float32)


def silent_gradient(x: Any, y: Any) -> Any:
    """Multiply, but lose the gradient of the second factor."""
    return mint.mul(x, ops.stop_gradient(y))


def layer(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Compute group_norm without its eps."""
    return F.group_norm(x, groups, weight, bias, 1e-12)


TINY = T(5, 7, low=-2e-5, high=2e-5)
SMALL = T(2, 6, 4, 4, low=-2e-3, high=2e-3)
X, Y = T(6, 8), T(6, 8, seed=1)
PLANTED: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {
    "factor": ("Mint.mul", lambda x, y: mint.mul(x, y) * 1.001, (X, Y)),
    "factor of two at 1e-5": ("Mint.mul", lambda x, y: mint.mul(x, y) * 2, (TINY, T(5, 7))),
    "factor in a sum": ("Mint.sum", lambda x, dim: mint.sum(x, dim) * 0.9999, (X, 1)),
    "sum of one element less": ("Mint.sum", lambda x, dim: mint.sum(x[:, 1:], dim), (X, 1)),
    "mean by n - 1": ("Mint.mean", lambda x, dim: mint.sum(x, dim) / 7, (X, 1)),
    "axis of a softmax": ("MintFunctional.softmax", lambda x, dim: F.softmax(x, 0), (X, 1)),
    "axis of a cat": ("Mint.cat", lambda tensors: mint.cat(tensors, 1), ((X, Y),)),
    "axes swapped": ("Mint.transpose", lambda x, a, b: mint.reshape(x, (2, 4, 4, 3)), (T(2, 3, 4, 4), 1, 3)),
    "second operand transposed": ("Mint.matmul", lambda x, y: mint.matmul(x, y.T), (X, T(8, 8))),
    "dtype of exp": ("Mint.exp", narrow(mint.exp), (X,)),
    "dtype of matmul": ("Mint.matmul", lambda x, y: mint.matmul(x.astype(ms.float16), y.astype(ms.float16)).astype(ms.float32), (X, T(8, 4))),
    "dtype of a sum": ("Mint.mean", narrow(mint.mean), (X,)),
    "dtype of the output": ("Mint.exp", lambda x: mint.exp(x.astype(ms.float16)), (X,)),
    "missing eps": ("MintFunctional.group_norm", layer, (SMALL, 3)),
    "missing eps of a root": ("Mint.rsqrt", lambda x: mint.rsqrt(x + 1e-6), (T(5, 7, low=0.1, high=2.0),)),
    "missing negative slope": ("MintFunctional.prelu", lambda x, weight: F.relu(x), (X, V([0.25]))),
    "wrong sign in sub": ("Mint.sub", mint.add, (X, Y)),
    "approximate silu": ("MintFunctional.silu", F.hardswish, (X,)),
    "off by one index": ("Mint.gather", lambda x, dim, index: mint.gather(x, dim, (index + 1) % 6), (X, 0, V([[0, 2, 1], [3, 4, 0]], "Int64"))),
    "strict comparison": ("Mint.ge", mint.gt, (V([[1.0, 1.0], [1.0, 1.0]]), V([[1.0, 1.0], [1.0, 1.0]]))),
    "lost gradient": ("Mint.mul", silent_gradient, (X, Y)),
    "bias left out": ("MintFunctional.linear", lambda x, weight, bias: F.linear(x, weight), (X, T(4, 8), T(4))),
    "rounded to three digits": ("Mint.add", lambda x, y: mint.round(mint.add(x, y) * 1000) / 1000, (X, Y)),
    "clamped": ("Mint.exp", lambda x: mint.clamp(mint.exp(x), 0.0, 7.0), (X,)),
    "nan": ("Mint.add", lambda x, y: mint.where(x > 1.9, float("nan") * x, x + y), (V([1.0, 1.95]), V([1.0, 1.0]))),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_planted_errors_are_errors(fault: str, task: str, tmp_path: Path) -> None:
    api, wrong, arguments = PLANTED[fault]
    faults = {api: wrong}
    recording = Recording(tmp_path, task, instead=faults if task == "tensor" else None)
    name = recording.call(api, *arguments)
    dump = recording.write()
    right = Checks(dump).result(name) if task == "statistics" else None
    found = Checks(dump, faults).result(name)
    assert found.standard is ERROR, texts(found)
    if right is not None:
        assert set(right.statuses) == {PASS}, texts(right)


def test_there_are_twenty_planted_errors_at_least() -> None:
    assert len(PLANTED) >= 20


def test_the_rule_alone_misses_a_factor_of_two_and_fails_what_is_right(tmp_path: Path) -> None:
    """The second judgement is needed, because the rule of the guide alone is wrong about both."""
    recording = Recording(tmp_path)
    small = recording.call("Mint.mul", TINY, T(5, 7))
    large = recording.call("Mint.mul", T(64, 64, low=-64, high=64), T(64, 64, low=-64, high=64, seed=1))
    dump = recording.write()
    wrong = Checks(dump, {"Mint.mul": lambda x, y: mint.mul(x, y) * 2}).result(small)
    assert (wrong.forward, wrong.standard) == (PASS, ERROR)
    right = Checks(dump).result(large)
    assert (right.forward, right.standard) == (ERROR, PASS)


# -- through the recorder --------------------------------------------------------------------------


def test_what_the_recorder_records_passes(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="tensor", level="L1")
    debugger.start()
    for one in CALLS:
        arguments = Arguments(typed(one.positional, "Float32"), typed(one.keywords, "Float32"))
        run(one, arguments)
    debugger.stop()
    debugger.step()
    (dump,) = tmp_path.glob("**/dump.json")
    checks = Checks(dump)
    results = checks.all()
    expected = Counter(one.api for one in CALLS if is_recorded(one))
    of_apis = {name: result for name, result in results.items() if get_api_name(name) in expected}
    assert Counter(map(get_api_name, of_apis)) == expected and len(of_apis) >= 180
    wrong = {name: texts(result) for name, result in of_apis.items() if not set(result.statuses) <= {PASS}}
    assert len(wrong) <= (1 - ALL) * len(of_apis), wrong
    assert sum(result.backward is PASS for result in of_apis.values()) > 120


def is_recorded(one: Any) -> bool:
    """Return True if a call takes a tensor and computes."""
    return one.api != "Mint.item" and bool(Arguments(one.positional, one.keywords).tensors)


def run(one: Any, arguments: Arguments) -> None:
    """Make a call as a user writes it, and differentiate it if that is possible."""
    scope, _, name = one.api.partition(".")

    def call(*tensors: Any) -> Any:
        given = iter(tensors)
        place: Any = F if scope == "MintFunctional" else mint
        for part in name.split("."):
            place = getattr(place, part)
        built = [
            map_leaves(part, lambda item: built_of(item, given)) for part in (arguments.positional, arguments.keywords)
        ]
        output = place(*built[0], **built[1])
        flat = [item for item in iterate_leaves(output) if isinstance(item, ms.Tensor) and item.dtype == ms.float32]
        return sum((ops.sum(item * 0.5) for item in flat[1:]), ops.sum(flat[0] * 0.5)) if flat else output

    inputs = [device.create_tensor(made) for made in arguments.tensors if made.is_float]
    differentiated = one.backward and inputs and one.api not in NOT_DIFFERENTIATED
    (ops.GradOperation(get_all=True)(call) if differentiated else call)(*inputs)


NOT_DIFFERENTIATED = {
    f"Mint.{name}" for name in ("isfinite", "isinf", "isnan", "eq", "ne", "not_equal", "gt", "greater", "ge",
    "greater_equal", "lt", "less", "le", "less_equal", "allclose", "isclose", "item", "searchsorted")
}  # fmt: skip
"""APIs that return no real number."""


def built_of(item: Any, given: Any) -> Any:
    if isinstance(item, DType):
        return getattr(ms, item.name.lower())
    if not isinstance(item, TensorArgument):
        return item
    return next(given) if item.is_float else device.create_tensor(item)
