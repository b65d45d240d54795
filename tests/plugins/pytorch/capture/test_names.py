"""What calls are called in a run: the canonical names, by real calls through the recorder, on the torch at hand."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from probe_pytorch.capture.names import FAMILIES, load_names
from support.runs.recording import recording
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import linear as bound_linear
from torch.nn.functional import softmax as bound_softmax
from torch.utils.checkpoint import checkpoint

from probe_core.errors import UserError

bound_relu, bound_add, bound_method = F.relu, torch.add, torch.Tensor.add

A, B = torch.rand(4, 4) + 0.5, torch.rand(4, 4) + 0.5
WHOLE, T = torch.arange(4), torch.tensor([True, False])
X = torch.rand(2, 3, 8, 8)
ROW = A[None]
TWO = 2


def modules() -> dict[str, nn.Module]:
    """Built before recording, for building them fills tensors."""
    return {
        "linear": nn.Linear(4, 4), "lstm": nn.LSTM(4, 4), "gru": nn.GRU(4, 4), "rnn": nn.RNN(4, 4),
        "rnn relu": nn.RNN(4, 4, nonlinearity="relu"), "lstm cell": nn.LSTMCell(4, 4), "gru cell": nn.GRUCell(4, 4),
        "layer norm": nn.LayerNorm(4), "batch norm": nn.BatchNorm2d(3), "conv": nn.Conv2d(3, 3, 3),
        "embedding": nn.Embedding(4, 4), "attention": nn.MultiheadAttention(4, 2), "tanh": nn.Tanh(),
        "sigmoid": nn.Sigmoid(), "softmax": nn.Softmax(dim=-1), "pool": nn.MaxPool2d(2), "gelu": nn.GELU(),
        "loss": nn.CrossEntropyLoss(), "dropout": nn.Dropout(0.5), "inplace": nn.ReLU(inplace=True),
    }  # fmt: skip


M = modules()


def in_place(sign: str, left: torch.Tensor, right: Any) -> Callable[[], Any]:
    code = compile(f"x {sign} right", "augmented", "exec")
    return lambda: exec(code, {"x": left.clone(), "right": right})


def variables() -> Any:
    x, k = A, 2
    return k * x, x * k, k + x.abs(), x.abs() + k


Names = list[str]
CALLS: dict[str, tuple[Callable[[], Any], Names]] = {
    # operators are called as the language calls them
    "a + b": (lambda: A + B, ["Tensor.__add__"]),
    "a - b": (lambda: A - B, ["Tensor.__sub__"]),
    "a * b": (lambda: A * B, ["Tensor.__mul__"]),
    "a / b": (lambda: A / B, ["Tensor.__truediv__"]),
    "a // b": (lambda: A // B, ["Tensor.__floordiv__"]),
    "a % b": (lambda: A % B, ["Tensor.__mod__"]),
    "a ** 2": (lambda: A**2, ["Tensor.__pow__"]),
    "a @ b": (lambda: A @ B, ["Tensor.__matmul__"]),
    "a & b": (lambda: T & T, ["Tensor.__and__"]),
    "a | b": (lambda: T | T, ["Tensor.__or__"]),
    "a ^ b": (lambda: T ^ T, ["Tensor.__xor__"]),
    "i << 1": (lambda: WHOLE << 1, ["Tensor.__lshift__"]),
    "i >> 1": (lambda: WHOLE >> 1, ["Tensor.__rshift__"]),
    "a < b": (lambda: A < B, ["Tensor.__lt__"]),
    "a <= b": (lambda: A <= B, ["Tensor.__le__"]),
    "a > b": (lambda: A > B, ["Tensor.__gt__"]),
    "a >= b": (lambda: A >= B, ["Tensor.__ge__"]),
    "a == b": (lambda: A == B, ["Tensor.__eq__"]),
    "a != b": (lambda: A != B, ["Tensor.__ne__"]),
    "1 < a": (lambda: 1 < A, ["Tensor.__gt__"]),  # noqa: SIM300
    "1 + a": (lambda: 1 + A, ["Tensor.__radd__"]),
    "2 * a": (lambda: 2 * A, ["Tensor.__rmul__"]),
    "a + 1": (lambda: A + 1, ["Tensor.__add__"]),
    "a * TWO": (lambda: A * TWO, ["Tensor.__mul__"]),
    "TWO * a": (lambda: TWO * A, ["Tensor.__rmul__"]),
    "-2.5 * a": (lambda: -2.5 * A, ["Tensor.__rmul__"]),
    "2 * (a + 1)": (lambda: 2 * (A + 1), ["Tensor.__add__", "Tensor.__rmul__"]),
    "(a + 1) * 2": (lambda: (A + 1) * 2, ["Tensor.__add__", "Tensor.__mul__"]),
    "1 + a.sum()": (lambda: 1 + A.sum(), ["Tensor.sum", "Tensor.__radd__"]),
    "variables": (
        variables, ["Tensor.__mul__", "Tensor.__mul__", "Tensor.abs", "Tensor.__add__", "Tensor.abs", "Tensor.__add__"],
    ),
    "1 - a": (lambda: 1 - A, ["Tensor.__rsub__"]),
    "2 ** a": (lambda: 2**A, ["Tensor.__rpow__"]),
    "2 % a": (lambda: 2 % A, ["Tensor.__rmod__"]),
    "True | t": (lambda: True | T, ["Tensor.__ror__"]),
    "True ^ t": (lambda: True ^ T, ["Tensor.__rxor__"]),
    "1 / a": (lambda: 1 / A, ["Tensor.reciprocal", "Tensor.__mul__"]),  # __rtruediv__ is not on the list
    "2 // a": (lambda: 2 // A, ["Torch.floor_divide"]),
    "-a": (lambda: -A, []),  # __neg__ is not on the list, although neg is
    "~a": (lambda: ~T, []),
    "abs(a)": (lambda: abs(A), ["Tensor.abs"]),
    "a += b": (in_place("+=", A, B), ["Tensor.__iadd__"]),
    "a -= b": (in_place("-=", A, B), ["Tensor.__isub__"]),
    "a *= b": (in_place("*=", A, B), ["Tensor.__imul__"]),
    "a /= b": (in_place("/=", A, B), ["Tensor.__idiv__"]),
    "a //= b": (in_place("//=", A, B), ["Tensor.__ifloordiv__"]),
    "a %= b": (in_place("%=", A, B), ["Tensor.__imod__"]),
    "a **= 2": (in_place("**=", A, 2), ["Tensor.__ipow__"]),
    "a &= b": (in_place("&=", T, T), ["Tensor.__iand__"]),
    "a |= b": (in_place("|=", T, T), ["Tensor.__ior__"]),
    "a ^= b": (in_place("^=", T, T), ["Tensor.__ixor__"]),
    "a <<= 1": (in_place("<<=", WHOLE, 1), ["Tensor.__ilshift__"]),
    "a >>= 1": (in_place(">>=", WHOLE, 1), ["Tensor.__irshift__"]),
    "a[0] = 1": (lambda: operator.setitem(A.detach().clone(), 0, 1.0), ["Tensor.__setitem__"]),
    "a[0]": (lambda: (A[0], A[1:3], A[None]), []),  # not on the list of 8.3
    "bool(a)": (lambda: bool(A[0, 0]), ["Tensor.__bool__"]),
    "if a": (lambda: 1 if A[0, 0] else 2, ["Tensor.__bool__"]),
    "pow(a, 2)": (lambda: pow(A, 2), ["Tensor.__pow__"]),
    # methods and functions of the same thing have names of their own
    "a.add": (lambda: A.add(B), ["Tensor.add"]),
    "torch.add": (lambda: torch.add(A, B), ["Torch.add"]),
    "a.lt": (lambda: A.lt(B), ["Tensor.lt"]),
    "torch.lt": (lambda: torch.lt(A, B), ["Torch.lt"]),
    "a.pow": (lambda: A.pow(2), ["Tensor.pow"]),
    "torch.pow": (lambda: torch.pow(A, 2), ["Torch.pow"]),
    "a.matmul": (lambda: A.matmul(B), ["Tensor.matmul"]),
    "torch.matmul": (lambda: torch.matmul(A, B), ["Torch.matmul"]),
    "a.relu": (lambda: A.relu(), ["Tensor.relu"]),
    "torch.relu": (lambda: torch.relu(A), ["Torch.relu"]),
    "F.relu": (lambda: F.relu(A), ["Functional.relu"]),
    "F.relu_": (lambda: F.relu_(A), ["Functional.relu_"]),
    "a.tanh": (lambda: A.tanh(), ["Tensor.tanh"]),
    "torch.tanh": (lambda: torch.tanh(A), ["Torch.tanh"]),
    "F.tanh": (lambda: F.tanh(A), ["Functional.tanh"]),
    "nn.Tanh": (lambda: M["tanh"](A), ["Torch.tanh"]),
    "a.sigmoid": (lambda: A.sigmoid(), ["Tensor.sigmoid"]),
    "torch.sigmoid": (lambda: torch.sigmoid(A), ["Torch.sigmoid"]),
    "F.sigmoid": (lambda: F.sigmoid(A), ["Functional.sigmoid"]),
    "nn.Sigmoid": (lambda: M["sigmoid"](A), ["Torch.sigmoid"]),
    "a.softmax": (lambda: A.softmax(-1), ["Tensor.softmax"]),
    "torch.softmax": (lambda: torch.softmax(A, -1), ["Torch.softmax"]),
    "F.softmax": (lambda: F.softmax(A, -1), ["Functional.softmax"]),
    "nn.Softmax": (lambda: M["softmax"](A), ["Functional.softmax"]),
    "a.split": (lambda: A.split(2), ["Tensor.split"]),
    "torch.split": (lambda: torch.split(A, 2), ["Torch.split"]),
    "a.norm": (lambda: A.norm(), ["Tensor.norm"]),
    "torch.norm": (lambda: torch.norm(A), ["Torch.norm"]),
    "a.mm": (lambda: A.mm(B), ["Tensor.mm"]),
    "torch.mm": (lambda: torch.mm(A, B), ["Torch.mm"]),
    "torch.max_pool2d": (lambda: torch.max_pool2d(X, 2), ["Torch.max_pool2d"]),
    "F.dropout": (lambda: F.dropout(A), ["Functional.dropout"]),
    "torch.dropout": (lambda: torch.dropout(A, 0.5, True), ["Torch.dropout"]),
    "a.t": (lambda: A.t(), ["Tensor.t"]),
    "a.add_": (lambda: A.detach().clone().add_(0), ["Tensor.add_"]),
    # functions of torch.nn.functional
    "F.hardswish": (lambda: F.hardswish(A), ["Functional.hardswish"]),
    "F.gelu": (lambda: F.gelu(A), ["Functional.gelu"]),
    "F.silu": (lambda: F.silu(A), ["Functional.silu"]),
    "F.leaky_relu": (lambda: F.leaky_relu(A), ["Functional.leaky_relu"]),
    "F.linear": (lambda: F.linear(A, B), ["Functional.linear"]),
    "F.conv2d": (lambda: F.conv2d(X, torch.ones_like(X)), ["Functional.conv2d"]),
    "F.max_pool2d": (lambda: F.max_pool2d(X, 2), ["Functional.max_pool2d"]),
    "F.max_pool2d with indices": (lambda: F.max_pool2d(X, 2, return_indices=True), ["Functional.max_pool2d"]),
    "F.max_pool2d_with_indices": (lambda: F.max_pool2d_with_indices(X, 2), ["Functional.max_pool2d_with_indices"]),
    "F.adaptive_max_pool2d": (lambda: F.adaptive_max_pool2d(X, 2), ["Functional.adaptive_max_pool2d"]),
    "F.avg_pool2d": (lambda: F.avg_pool2d(X, 2), ["Functional.avg_pool2d"]),
    "F.pad": (lambda: F.pad(A, (1, 1)), ["Functional.pad"]),
    "F.interpolate": (lambda: F.interpolate(X, scale_factor=2), ["Functional.interpolate"]),
    "F.one_hot": (lambda: F.one_hot(WHOLE), ["Functional.one_hot"]),
    "F.cosine_similarity": (lambda: F.cosine_similarity(A, B), ["Functional.cosine_similarity"]),
    "sdpa": (lambda: F.scaled_dot_product_attention(X, X, X), ["Functional.scaled_dot_product_attention"]),
    # functions of torch
    "torch.einsum": (lambda: torch.einsum("ij,jk->ik", A, B), ["Torch.einsum"]),
    "torch.cat": (lambda: torch.cat([A, B]), ["Torch.cat"]),
    "torch.where": (lambda: torch.where(A > 0, A, B), ["Tensor.__gt__", "Torch.where"]),
    "torch.arange": (lambda: torch.arange(3), ["Torch.arange"]),
    "torch.stft": (lambda: torch.stft(X.flatten(), 16, window=torch.ones(16), return_complex=True), ["Tensor.flatten", "Torch.stft"]),
    "torch.linalg": (
        lambda: (torch.linalg.norm(A), torch.linalg.inv(A), torch.linalg.matmul(A, B)),
        ["Torch.linalg.norm", "Torch.linalg.inv", "Torch.linalg.matmul"],
    ),
    "torch.fft": (lambda: torch.fft.fft(A), ["Torch.fft.fft"]),
    "torch.special": (lambda: torch.special.expit(A), ["Torch.special.expit"]),
    "out": (lambda: torch.add(A, B, out=torch.empty(4, 4)), ["Torch.add"]),
    # recurrent networks count as torch._VF
    "nn.LSTM": (lambda: M["lstm"](ROW), ["VF.lstm"]),
    "nn.GRU": (lambda: M["gru"](ROW), ["VF.gru"]),
    "nn.RNN": (lambda: M["rnn"](ROW), ["VF.rnn_tanh"]),
    "nn.RNN with relu": (lambda: M["rnn relu"](ROW), ["VF.rnn_relu"]),
    "nn.LSTMCell": (lambda: M["lstm cell"](A), ["VF.lstm_cell"]),
    "nn.GRUCell": (lambda: M["gru cell"](A), ["VF.gru_cell"]),
    # operators of aten
    "torch.ops.aten.add": (lambda: torch.ops.aten.add(A, B), ["Aten.add"]),
    "an overload": (lambda: torch.ops.aten.add.Tensor(A, B), ["Aten.add"]),
    "torch.ops.aten.mm.default": (lambda: torch.ops.aten.mm.default(A, B), ["Aten.mm"]),
    "torch.ops.aten.relu_": (lambda: torch.ops.aten.relu_(A), ["Aten.relu_"]),
    # modules are the functions that they call; only the outermost is recorded
    "nn.Linear": (lambda: M["linear"](A), ["Functional.linear"]),
    "nn.LayerNorm": (lambda: M["layer norm"](A), ["Functional.layer_norm"]),
    "nn.BatchNorm2d": (lambda: M["batch norm"](X), ["Tensor.add_", "Functional.batch_norm"]),
    "nn.Conv2d": (lambda: M["conv"](X), ["Functional.conv2d"]),
    "nn.Embedding": (lambda: M["embedding"](WHOLE), ["Functional.embedding"]),
    "nn.MaxPool2d": (lambda: M["pool"](X), ["Functional.max_pool2d"]),
    "nn.GELU": (lambda: M["gelu"](A), ["Functional.gelu"]),
    "nn.Dropout": (lambda: M["dropout"](A), ["Functional.dropout"]),
    "nn.ReLU(inplace)": (lambda: M["inplace"](A), ["Functional.relu"]),
    "nn.MultiheadAttention": (lambda: M["attention"](ROW, ROW, ROW), ["Functional.multi_head_attention_forward"]),
    "nn.CrossEntropyLoss": (lambda: M["loss"](A, WHOLE), ["Functional.cross_entropy"]),
    "F.cross_entropy": (lambda: F.cross_entropy(A, WHOLE), ["Functional.cross_entropy"]),
    "F.triplet_margin_loss": (lambda: F.triplet_margin_loss(A, B, A), ["Functional.triplet_margin_loss"]),
    "F.gumbel_softmax": (lambda: F.gumbel_softmax(A), ["Functional.gumbel_softmax"]),
    "checkpoint": (lambda: checkpoint(F.softmax, A, -1, use_reentrant=False), ["Functional.softmax"]),
    # what the lists do not name is nothing, but what it calls is seen
    "not recorded": (lambda: (A.shape, A.T, A.dim(), A.is_contiguous(), torch.is_tensor(A), A.detach(), len(A)), []),
    "torch.zeros": (lambda: (torch.zeros(2), torch.tensor([1.0]), torch.as_tensor(1)), []),
    # names that were bound before recording began
    "bound functions": (
        lambda: (bound_linear(A, B), bound_softmax(A, -1), bound_relu(A), bound_add(A, B), bound_method(A, B)),
        ["Functional.linear", "Functional.softmax", "Functional.relu", "Torch.add", "Tensor.add"],
    ),
    "a partial": (lambda: functools.partial(F.leaky_relu, negative_slope=0.5)(A), ["Functional.leaky_relu"]),
}  # fmt: skip

SYNONYMS = {name: (lambda name=name: getattr(torch, name)(A, B)) for name in ("dsmm", "spmm")}


class Run(dict[str, dict[str, Any]]):
    """The records of each call, which had a step of its own."""


def record(path: Path, calls: dict[str, Callable[[], Any]], **fields: Any) -> Run:
    found = Run()
    path.mkdir(exist_ok=True)
    with recording(path / "run", **{"level": "L1", **fields}) as run:
        for call in calls.values():
            run.start()
            try:
                with torch.no_grad():
                    call()
            finally:
                run.stop()
                run.step()
    for number, label in enumerate(calls):
        found[label] = run.records(number)
    return found


def names(records: dict[str, Any]) -> Names:
    return [key.rsplit(".", 2)[0] for key in records if key.endswith(".forward")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All calls, in one recording."""
    calls = {label: call for label, (call, _) in CALLS.items()}
    return record(tmp_path_factory.mktemp("names"), {**calls, **SYNONYMS, **WRITTEN_CALLS, **ODD_CALLS})


@pytest.mark.parametrize("label", CALLS)
def test_name(label: str, run: Run) -> None:
    assert names(run[label]) == CALLS[label][1]


@pytest.mark.parametrize("label", SYNONYMS)
def test_synonyms_are_called_by_the_common_name(label: str, run: Run) -> None:
    assert names(run[label]) == ["Torch.mm"]
    assert names(run["torch.mm"]) == ["Torch.mm"]


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("normal_", (), ["Tensor.normal_"]),
        ("xavier_normal_", (), ["Tensor.normal_"]),
        ("constant_", (1.0,), ["Tensor.fill_"]),
        ("ones_", (), ["Tensor.fill_"]),
        ("uniform_", (), []),  # Tensor.uniform_ is not listed
        ("kaiming_uniform_", (), []),
    ],
)
def test_functions_of_init_are_recorded_by_what_they_call(
    function: str, arguments: tuple[Any, ...], expected: list[str], tmp_path: Path
) -> None:
    plain, recorded = torch.empty(3, 3), torch.nn.Parameter(torch.empty(3, 3))
    torch.manual_seed(0)
    getattr(torch.nn.init, function)(plain, *arguments)
    torch.manual_seed(0)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        getattr(torch.nn.init, function)(recorded, *arguments)
        found.stop()
    assert [name.rpartition(".0.")[0] for name in found.records()] == expected
    assert torch.equal(plain, recorded)


def test_each_name_counts_from_zero(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for _ in range(2):
            found.start()
            for _ in range(2):
                F.relu(A + B)
            F.relu(A)
            found.stop()
            found.step()
    for step in range(2):
        assert list(found.records(step)) == [
            "Tensor.__add__.0.forward", "Functional.relu.0.forward", "Tensor.__add__.1.forward",
            "Functional.relu.1.forward", "Functional.relu.2.forward",
        ]  # fmt: skip


def test_a_call_that_raises_is_no_record(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        with pytest.raises(RuntimeError):
            torch.mm(A, X)
        torch.mm(A, B)
        found.stop()
    assert list(found.records()) == ["Torch.mm.0.forward"]


def scaled(scale: int) -> bool:
    value = torch.rand(3)
    scale * value
    found = weakref.ref(value)
    del value
    return found() is None


def test_recording_keeps_no_variable_alive(tmp_path: Path) -> None:
    assert scaled(2)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        freed = scaled(2)
        found.stop()
    assert list(found.records()) == ["Tensor.__mul__.0.forward"]
    assert freed


# -- calls that a name does not show -----------------------------------------------------------------------

ODD: dict[str, tuple[Callable[[], Any], Names, str]] = {
    "sum": (lambda: sum([A, B]), ["Tensor.__radd__", "Tensor.__add__"], "called by C: the site is a call, not an operator"),
    "operator.add": (lambda: operator.add(A, B), ["Tensor.__add__"], "called by C: the site is a call, not an operator"),
    "reduce": (
        lambda: functools.reduce(operator.mul, [A, B]), ["Tensor.__mul__"], "called by C: the site is a call, not an operator",
    ),
}  # fmt: skip
ODD_CALLS = {f"odd {label}": call for label, (call, _, _) in ODD.items()}


@pytest.mark.parametrize(
    "label",
    [pytest.param(n, marks=pytest.mark.xfail(strict=True, reason=why)) for n, (_, _, why) in ODD.items()],
)
def test_operators_in_disguise(label: str, run: Run) -> None:
    """The peer wraps the methods that the language calls, whoever calls them."""
    assert names(run[f"odd {label}"]) == ODD[label][1]


# -- arguments as they were written ------------------------------------------------------------------------


def softmax_by_position() -> Any:
    return F.softmax(A, -1)


Written = tuple[Callable[[], Any], int, list[str]]
WRITTEN: dict[str, Written] = {
    "F.softmax(x, dim=-1)": (lambda: F.softmax(A, dim=-1), 1, ["dim"]),
    "F.softmax(x, -1)": (softmax_by_position, 2, []),
    "F.softmax(input=x, dim=-1)": (lambda: F.softmax(input=A, dim=-1), 0, ["input", "dim"]),
    "F.softmax(dim=-1, input=x)": (lambda: F.softmax(dim=-1, input=A), 0, ["dim", "input"]),
    "torch.softmax(x, dim=-1)": (lambda: torch.softmax(A, dim=-1), 1, ["dim"]),
    "x.softmax(dim=-1)": (lambda: A.softmax(dim=-1), 1, ["dim"]),
    "nn.Softmax": (lambda: M["softmax"](A), 2, ["_stacklevel"]),
    "nn.LayerNorm": (lambda: M["layer norm"](A), 5, []),
    "nn.BatchNorm2d": (lambda: M["batch norm"](X), 8, []),
    "nn.Linear": (lambda: M["linear"](A), 3, []),
    "nn.MaxPool2d": (lambda: M["pool"](X), 5, ["ceil_mode", "return_indices"]),
    "F.max_pool2d(x, 2, stride=1)": (lambda: F.max_pool2d(X, 2, stride=1), 2, ["stride"]),
    "F.dropout(x, p=0.1)": (lambda: F.dropout(A, p=0.1), 1, ["p"]),
    "F.dropout(x, 0.5)": (lambda: F.dropout(A, 0.5), 2, []),  # the default, written
    "F.relu(x, inplace=False)": (lambda: F.relu(A, inplace=False), 1, ["inplace"]),
    "F.cross_entropy": (lambda: F.cross_entropy(A, WHOLE, reduction="sum", label_smoothing=0.1), 2, ["reduction", "label_smoothing"]),
    "x.split(2)": (lambda: A.split(2), 2, []),
    "x.split(2, dim=1)": (lambda: A.split(2, dim=1), 2, ["dim"]),
    "torch.split(x, 2, 1)": (lambda: torch.split(A, 2, 1), 3, []),
    "torch.einsum": (lambda: torch.einsum("ij,jk->ik", A, B), 3, []),
    "x ** 2": (lambda: A**2, 2, []),
    "1 - x": (lambda: 1 - A, 2, []),
    "torch.add(x, y, alpha=2)": (lambda: torch.add(A, B, alpha=2), 2, ["alpha"]),
    "torch.norm(x, dim=1)": (lambda: torch.norm(A, dim=1), 1, ["dim"]),
    "F.interpolate": (lambda: F.interpolate(X, scale_factor=2, mode="nearest"), 1, ["scale_factor", "mode"]),
    "F.softmax(*, **)": (lambda: F.softmax(*(A,), **{"dim": -1}), 1, ["dim"]),
}  # fmt: skip
WRITTEN_CALLS = {f"written {label}": call for label, (call, _, _) in WRITTEN.items()}


@pytest.mark.parametrize("label", WRITTEN)
def test_arguments_as_written(label: str, run: Run) -> None:
    _, positional, keywords = WRITTEN[label]
    record = list(run[f"written {label}"].values())[-1]
    assert (len(record["input_args"]), list(record["input_kwargs"])) == (positional, keywords)
    assert all(leaf is not None or "Norm" in label for leaf in record["input_args"][:1])


def test_values_of_arguments(run: Run) -> None:
    record = run["written F.cross_entropy"]["Functional.cross_entropy.0.forward"]
    assert record["input_kwargs"] == {
        "reduction": {"type": "str", "value": "sum"}, "label_smoothing": {"type": "float", "value": 0.1},
    }  # fmt: skip
    record = run["written nn.LayerNorm"]["Functional.layer_norm.0.forward"]
    shape, weight, bias, epsilon = record["input_args"][1:]
    assert shape == [{"type": "int", "value": 4}] and epsilon == {"type": "float", "value": 1e-5}
    assert (bias["shape"], bias["Max"]) == ([4], 0.0)
    assert (weight["shape"], weight["Max"], weight["requires_grad"]) == ([4], 1.0, True)
    record = run["1 - a"]["Tensor.__rsub__.0.forward"]
    assert record["input_args"][1] == {"type": "int", "value": 1}


LOST = {
    "functools.partial": lambda: functools.partial(F.softmax, dim=-1)(A),
    "map": lambda: list(map(F.softmax, [A], [-1])),
}


@pytest.mark.parametrize("label", LOST)
def test_no_argument_is_lost(label: str, tmp_path: Path) -> None:
    (found,) = record(tmp_path, {label: LOST[label]})[label].values()
    values = [*found["input_args"][1:], *found["input_kwargs"].values()]
    assert {"type": "int", "value": -1} in values


def test_a_method_by_way_of_its_class(tmp_path: Path) -> None:
    (found,) = record(tmp_path, {"split": lambda: torch.Tensor.split(A, 2)})["split"].values()
    assert len(found["input_args"]) == 3  # the default with them: the object counts as one more argument


# -- lists of the user's own -------------------------------------------------------------------------------


def lists(path: Path, change: Callable[[dict[str, list[str]]], None]) -> dict[str, Any]:
    """The list that ships, changed."""
    from importlib.resources import files

    found = yaml.safe_load((files("probe_pytorch.capture") / "support_wrap_ops.yaml").read_text("utf-8"))
    change(found)
    ops = path / "ops.yaml"
    ops.write_text(yaml.safe_dump(found))
    return {"support_wrap_ops": str(ops)}


def both() -> Any:
    return F.softmax(A, -1), torch.matmul(A, B), A + B, A.add(B), A.dim(), torch.zeros(1)


def test_one_line_less(tmp_path: Path) -> None:
    def change(found: dict[str, list[str]]) -> None:
        found["functional"].remove("softmax")
        found["torch"].remove("matmul")
        found["tensor"].remove("__add__")

    before = names(record(tmp_path / "a", {"x": both}, **lists(tmp_path, lambda found: None))["x"])
    after = names(record(tmp_path / "b", {"x": both}, **lists(tmp_path, change))["x"])
    assert before == names(record(tmp_path / "c", {"x": both})["x"])
    # what softmax calls inside is seen in its place
    assert before[:4] == ["Functional.softmax", "Torch.matmul", "Tensor.__add__", "Tensor.add"]
    assert after == ["Tensor.softmax", "Tensor.add", *before[4:]]


def test_a_function_taken_off_the_list_has_no_second_name(tmp_path: Path) -> None:
    ops = lists(tmp_path, lambda found: found["torch"].remove("mm"))
    assert names(record(tmp_path / "a", {"x": lambda: torch.mm(A, B)}, **ops)["x"]) == []


def test_one_line_more(tmp_path: Path) -> None:
    def change(found: dict[str, list[str]]) -> None:
        found["torch"].append("zeros")
        found["tensor"].append("dim")
        found["tensor"].append("__neg__")
        found["functional"].append("rms_norm")
        found["functional"].append("of_another_version")

    calls: dict[str, Callable[[], Any]] = {"x": lambda: (torch.zeros(1), A.dim(), -A, A.neg())}
    if hasattr(F, "rms_norm"):
        calls["y"] = lambda: F.rms_norm(A, (4,))
    found = record(tmp_path, calls, **lists(tmp_path, change))
    assert names(found["x"]) == ["Torch.zeros", "Tensor.dim", "Tensor.__neg__", "Tensor.neg"]
    if "y" in found:
        assert names(found["y"]) == ["Functional.rms_norm"]
    assert names(record(tmp_path / "a", {"x": calls["x"]})["x"]) == ["Tensor.neg"]


def test_a_list_of_one(tmp_path: Path) -> None:
    ops = tmp_path / "ops.yaml"
    ops.write_text("functional: [linear]\ntensor:\nunknown_family: [x]\n")
    found = record(
        tmp_path, {"x": lambda: (both(), F.linear(A, B), torch.ops.aten.add(A, B))}, support_wrap_ops=str(ops)
    )
    assert names(found["x"]) == ["Functional.linear"]


def test_a_composite_that_is_not_listed_shows_what_is_inside(tmp_path: Path) -> None:
    def change(found: dict[str, list[str]]) -> None:
        for name in ("cross_entropy", "multi_head_attention_forward", "triplet_margin_with_distance_loss"):
            found["functional"].remove(name)

    def attention() -> Any:
        return M["attention"](ROW, ROW, ROW)

    calls = {
        "loss": lambda: F.cross_entropy(A, WHOLE),
        "attention": attention,
        "triplet": lambda: F.triplet_margin_with_distance_loss(A, B, A),
    }
    found = record(tmp_path, calls, **lists(tmp_path, change))
    assert names(found["loss"]) == []  # its inside is C
    inside = names(found["attention"])
    assert inside[0] == inside[-2] == "Functional.linear" and "Functional.softmax" in inside
    assert names(found["triplet"]) == [
        "Functional.pairwise_distance", "Functional.pairwise_distance", "Tensor.__add__", "Tensor.__sub__",
        "Torch.clamp_min", "Torch.mean",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "cannot be read"), ("functional: [", "not valid yaml"), ("[relu]", "must map"), ("functional: relu", "must map"),
     ("functional: [1, 2]", "must map"), ("", "must map"), ("functional: {relu: 1}", "must map"),
     ("!!python/object/apply:os.system [ls]", "not valid yaml")],
)  # fmt: skip
def test_a_list_that_is_none(text: str | None, says: str, tmp_path: Path) -> None:
    ops = tmp_path / "ops.yaml"
    if text is not None:
        ops.write_text(text)
    with pytest.raises(UserError) as caught:
        load_names(ops)
    assert says in caught.value.what and str(ops) in caught.value.what
    if says == "must map":
        assert caught.value.choices == FAMILIES


# -- risk levels -------------------------------------------------------------------------------------------


def mixed() -> Any:
    return (
        torch.mm(A, B), A @ B, F.linear(A, B), F.layer_norm(A, (4,)), F.relu(A), A + B, A.reshape(16), A.t(), A.transpose(0, 1),
        torch.cat([A]), torch.clone(A), torch.clamp(A, 0), torch.ops.aten.mm(A, B), A.float(), A.sum(),
    )  # fmt: skip


RISK = {
    "ALL": ["Torch.mm", "Tensor.__matmul__", "Functional.linear", "Functional.layer_norm", "Functional.relu", "Tensor.__add__",
            "Tensor.reshape", "Tensor.t", "Tensor.transpose", "Torch.cat", "Torch.clone", "Torch.clamp", "Aten.mm",
            "Tensor.float", "Tensor.sum"],
    "FOCUS": ["Torch.mm", "Tensor.__matmul__", "Functional.linear", "Functional.layer_norm", "Functional.relu",
              "Tensor.__add__", "Tensor.t", "Aten.mm", "Tensor.sum"],
    "CORE": ["Torch.mm", "Tensor.__matmul__", "Functional.linear", "Functional.layer_norm", "Aten.mm"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("level", "call"),
    [("CORE", lambda: torch.ops.aten.add(A, B)), ("FOCUS", lambda: torch.ops.aten.reshape(A, (16,)))],
    ids=["CORE", "FOCUS"],
)
def test_risk_level_of_aten(level: str, call: Callable[[], Any], tmp_path: Path) -> None:
    assert names(record(tmp_path, {"x": call}, risk_level=level)["x"]) == []


@pytest.mark.parametrize("level", RISK)
def test_risk_level(level: str, tmp_path: Path) -> None:
    assert names(record(tmp_path, {"x": mixed}, risk_level=level)["x"]) == RISK[level]


def test_core_is_part_of_focus_and_that_of_all() -> None:
    sizes = []
    for level in ("CORE", "FOCUS", "ALL"):
        found = load_names(risk_level=level)
        sizes.append(
            {api.name for api in found.by_function.values()}
            | {api.operator for api in found.by_function.values()}
        )
    assert sizes[0] < sizes[1] < sizes[2]


# -- the tables themselves ---------------------------------------------------------------------------------


def test_every_listed_function_of_this_torch_is_known() -> None:
    """A name of the list that torch has is a name that a call can have."""
    from importlib.resources import files

    listed = yaml.safe_load((files("probe_pytorch.capture") / "support_wrap_ops.yaml").read_text("utf-8"))
    found = load_names()
    known = {
        n
        for api in found.by_function.values()
        for n in (api.name, api.operator, api.recurrent, api.reflected)
        if n
    }
    known |= set(found.by_code.values()) | set(found.dispatched.values())
    for name in listed["functional"]:
        assert f"Functional.{name}" in known or not hasattr(F, name), name
    shared = {"dsmm", "spmm", "hsmm", "saddmm"}
    for name in listed["tensor"]:
        if hasattr(torch.Tensor, name) and name not in ("__rdiv__",):
            assert f"Tensor.{name}" in known or other_name(torch.Tensor, name, found), name
    for name in listed["torch"]:
        holder: Any = torch
        for part in name.split("."):
            holder = getattr(holder, part, None)
        if holder is not None and name not in shared:
            assert f"Torch.{name}" in known or holder in found.by_function, name


def test_every_npu_operator_of_the_older_guide_is_listed() -> None:
    """The 47 operators of torch_npu that the manual of ptdbg_ascend names."""
    from importlib.resources import files

    listed = yaml.safe_load((files("probe_pytorch.capture") / "support_wrap_ops.yaml").read_text("utf-8"))
    older = """
        one_ npu_sort_v2 npu_transpose npu_broadcast npu_dtype_cast empty_with_format npu_one_hot npu_stride_add
        npu_ps_roi_pooling npu_roi_align npu_nms_v4 npu_iou npu_nms_with_mask npu_pad npu_bounding_box_encode
        npu_bounding_box_decode npu_batch_nms npu_slice _npu_dropout npu_indexing npu_ifmr npu_max npu_scatter
        npu_layer_norm_eval npu_alloc_float_status npu_get_float_status npu_clear_float_status
        npu_confusion_transpose npu_bmmV2 fast_gelu npu_sub_sample npu_deformable_conv2d npu_mish
        npu_anchor_response_flags npu_yolo_boxes_encode npu_grid_assign_positive npu_normalize_batch
        npu_masked_fill_range npu_linear npu_bert_apply_adam npu_giou npu_ciou npu_ciou_backward npu_diou
        npu_diou_backward npu_sign_bits_pack npu_sign_bits_unpack
    """
    assert len(older.split()) == 47
    assert [name for name in older.split() if name not in listed["torch_npu"]] == []


def other_name(holder: Any, name: str, found: Any) -> bool:
    return getattr(holder, name) in found.by_function
