"""Names of recorded calls."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import linear as bound_linear
from torch.nn.functional import softmax as bound_softmax
from torch.utils.checkpoint import checkpoint

from support.runs.recording import recording

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


# -- calls that a name does not show -----------------------------------------------------------------------


ODD: dict[str, tuple[Callable[[], Any], Names, str]] = {
    "sum": (lambda: sum([A, B]), ["Tensor.__radd__", "Tensor.__add__"], "called by C: the site is a call, not an operator"),
    "operator.add": (lambda: operator.add(A, B), ["Tensor.__add__"], "called by C: the site is a call, not an operator"),
    "reduce": (
        lambda: functools.reduce(operator.mul, [A, B]), ["Tensor.__mul__"], "called by C: the site is a call, not an operator",
    ),
}  # fmt: skip
ODD_CALLS = {f"odd {label}": call for label, (call, _, _) in ODD.items()}
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
