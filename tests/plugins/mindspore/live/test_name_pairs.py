"""The table of names, checked with both frameworks: paired APIs exist and return the same values on this CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT

pytest.importorskip("mindspore")
pytest.importorskip("torch")

import mindspore
import torch
import yaml
from mindspore import Tensor, mint, nn, ops
from probe_matching.name_table import Positions
from probe_mindspore import names
from probe_mindspore.names import load_table

mindspore.runtime.launch_blocking()
MINDSPORE: dict[str, Any] = {
    "Mint": mint,
    "MintFunctional": mint.nn.functional,
    "Functional": ops,
    "Tensor": Tensor,
}
PYTORCH: dict[str, Any] = {"Torch": torch, "Functional": torch.nn.functional, "Tensor": torch.Tensor}
TABLE = load_table()
ARGUMENTS = Positions(TABLE.source, TABLE.target)

random = np.random.default_rng(7)
X = random.uniform(-2, 2, (4, 6)).astype(np.float32)
Y = random.uniform(-2, 2, (4, 6)).astype(np.float32)
P = random.uniform(0.2, 0.9, (4, 6)).astype(np.float32)
SQUARE = random.uniform(-1, 1, (6, 6)).astype(np.float32)
BATCHES = random.uniform(-1, 1, (2, 3, 4)).astype(np.float32)
IMAGE = random.uniform(-1, 1, (2, 3, 8, 8)).astype(np.float32)
KERNEL = random.uniform(-1, 1, (5, 3, 3, 3)).astype(np.float32)
VECTOR = random.uniform(-1, 1, 6).astype(np.float32)
WHOLE = random.integers(1, 9, (4, 6)).astype(np.int32)
TRUE = X > 0
ROWS = np.array([0, 2, 1], np.int64)
LABELS = np.array([1, 0, 5, 3], np.int32)

UNARY = {
    "Mint": (
        "abs ceil cos cosh erf erfc exp expm1 floor neg negative round sigmoid sign sin sinc sinh square tanh trunc "
        "fix isfinite isinf isnan nan_to_num ravel sum mean max min"
    ),
    "MintFunctional": "relu silu sigmoid tanh hardshrink softshrink",
    "Functional": "abs sin cos exp relu gelu sigmoid tanh square neg floor ceil isfinite erf expm1 elu silu softsign",
    "Tensor": (
        "__abs__ __neg__ abs sin cos exp tanh square floor ceil neg sigmoid sum mean max min cumsum=0 argmax "
        "flatten round sign sinh erf"
    ),
}
BINARY = {
    "Mint": "add sub mul div maximum minimum eq ne gt ge lt le allclose isclose",
    "Tensor": (
        "__add__ __sub__ __mul__ __truediv__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __radd__ __rmul__ "
        "add sub mul div maximum minimum eq ne"
    ),
    "Functional": "add sub mul div maximum minimum eq ne less greater",
}


def spread(words: dict[str, str], *arrays: Any) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    calls = []
    for scope, text in words.items():
        for word in text.split():
            name, _, extra = word.partition("=")
            calls.append((f"{scope}.{name}", (*arrays, *([int(extra)] if extra else [])), {}))
    return calls


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *spread(UNARY, X),
    *spread(BINARY, X, Y),
    *((f"{scope}.{name}", (P,), {}) for scope in ("Mint", "Tensor") for name in ("log", "sqrt", "rsqrt", "log1p")),
    ("Mint.mean", (X,), {"dim": -1, "keepdim": True}), ("Mint.sum", (X, 0), {}), ("Mint.sum", (X,), {"dim": 1}),
    ("Mint.max", (X, 1), {}), ("Mint.chunk", (X, 2), {"dim": -1}), ("Mint.split", (X, 2), {"dim": 0}),
    ("Mint.permute", (BATCHES, (2, 0, 1)), {}), ("Mint.reshape", (X, (6, 4)), {}), ("Mint.matmul", (X, SQUARE), {}),
    ("Mint.transpose", (X, 0, 1), {}), ("Mint.cat", ((X, Y),), {"dim": 1}), ("Mint.pow", (P, 2.0), {}),
    ("Mint.clamp", (X, -0.5, 0.5), {}), ("Mint.where", (TRUE, X, Y), {}), ("Mint.flip", (X, (0,)), {}),
    ("Mint.unsqueeze", (X, 1), {}), ("Mint.narrow", (X, 1, 2, 3), {}), ("Mint.add", (X, Y), {"alpha": 2}),
    ("Mint.remainder", (X, P), {}), ("Mint.lerp", (X, Y, 0.25), {}), ("Mint.triu", (SQUARE,), {"diagonal": 1}),
    ("Mint.bitwise_and", (WHOLE, WHOLE), {}), ("Mint.logical_not", (TRUE,), {}), ("Mint.arctanh", (P,), {}),
    ("MintFunctional.softmax", (X,), {"dim": -1}), ("MintFunctional.linear", (X, SQUARE, VECTOR), {}),
    ("MintFunctional.linear", (X, SQUARE), {"bias": VECTOR}), ("MintFunctional.flatten", (IMAGE, 1), {}),
    ("MintFunctional.group_norm", (np.concatenate([IMAGE, IMAGE], 1), 3), {}),
    ("Functional.mean", (X,), {"axis": 1, "keep_dims": True}), ("Functional.mean", (X, 1), {}),
    ("Functional.sum", (X,), {"dim": 1}), ("Functional.softmax", (X,), {"axis": 0}), ("Functional.softmax", (X, 1), {}),
    ("Functional.cat", ((X, Y),), {"axis": 1}), ("Functional.stack", ((X, Y),), {"axis": 1}),
    ("Functional.expand_dims", (X, 1), {}), ("Functional.transpose", (X, (1, 0)), {}),
    ("Functional.permute", (BATCHES,), {"axis": (2, 0, 1)}), ("Functional.permute", (BATCHES, (2, 0, 1)), {}),
    ("Functional.reshape", (X, (6, 4)), {}), ("Functional.conv2d", (IMAGE, KERNEL), {"stride": 2}),
    ("Functional.conv2d", (IMAGE, KERNEL, None, 1, "pad", 1), {}), ("Functional.dense", (X, SQUARE, VECTOR), {}),
    ("Functional.cross_entropy", (X, LABELS), {}), ("Functional.log_softmax", (X,), {"axis": 1}),
    ("Functional.gather_elements", (X, 0, ROWS[None]), {}), ("Functional.mse_loss", (X, Y), {}),
    ("Functional.matmul", (X, SQUARE), {}), ("Functional.bmm", (BATCHES, BATCHES.transpose(0, 2, 1)), {}),
    ("Functional.cumsum", (X,), {"axis": 1}), ("Functional.unsqueeze", (X, 0), {}),
    ("Functional.clamp", (X, -0.5, 0.5), {}), ("Functional.max_pool2d", (IMAGE, 2), {"stride": 2}),
    ("Tensor.sum", (X,), {"dim": 1}), ("Tensor.mean", (X,), {"axis": 0}), ("Tensor.mean", (X, 1, True), {}),
    ("Tensor.permute", (BATCHES, 2, 0, 1), {}), ("Tensor.reshape", (X, 6, 4), {}), ("Tensor.view", (X, 6, 4), {}),
    ("Tensor.expand_dims", (X, 1), {}), ("Tensor.unsqueeze", (X, 1), {}), ("Tensor.matmul", (X, SQUARE), {}),
    ("Tensor.__matmul__", (X, SQUARE), {}), ("Tensor.pow", (P, 2.0), {}), ("Tensor.topk", (X, 2), {}),
    ("Tensor.clamp", (X, -0.5, 0.5), {}), ("Tensor.masked_fill", (X, TRUE, 0.5), {}), ("Tensor.chunk", (X, 2, 1), {}),
    ("Tensor.squeeze", (X[None], 0), {}), ("Tensor.max", (X,), {"dim": 1}),
    ("Tensor.swapaxes", (X, 0, 1), {}),
]  # fmt: skip
UNEQUAL = [("Tensor.std", (X,), {}), ("Tensor.var", (X,), {}), ("Functional.var", (X,), {"axis": 1})]
"""Calls whose defaults differ, which a hint mentions."""


def function(scopes: dict[str, Any], name: str) -> Callable[..., Any]:
    scope, bare = name.split(".")
    found: Callable[..., Any] = getattr(scopes[scope], bare)
    return found


def given(value: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, tuple) and any(isinstance(item, np.ndarray) for item in value):
        return tuple(make(item) for item in value)
    return value


def torch_given(array: np.ndarray[Any, Any]) -> torch.Tensor:
    found = torch.tensor(array)
    return found.long() if array is LABELS else found


def arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in arrays(item)]
    if isinstance(value, Tensor):
        return [value.asnumpy()]
    return [value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)]


def in_torch(api: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Run the call that the table gives for PyTorch, with each argument at its place."""
    word = TABLE.source.word(api)
    columns = [column.rstrip("*").split("|") for column in TABLE.target.arguments.get(word, ())]
    found: dict[int, Any] = {}
    spelled: dict[str, Any] = {}
    for own, value in (*enumerate(positional), *keywords.items()):
        place = ARGUMENTS.find_place(api, str(own), is_scalar=isinstance(value, int))
        head, _, rest = place.partition(".")
        if not head.isdecimal():
            if value not in (None, "pad", "valid"):  # defaults of PyTorch, which has no words for them
                spelled[head] = given(value, torch_given)
        elif own in keywords and not rest:
            spelled[common(api, own, columns[int(head)])] = given(value, torch_given)
        elif rest:
            found.setdefault(int(head), {})[int(rest)] = value
        else:
            found[int(head)] = given(value, torch_given)
    lists = {n: tuple(v[i] for i in sorted(v)) if isinstance(v, dict) else v for n, v in found.items()}
    count = next(n for n in range(len(lists) + 1) if n not in lists)
    behind = {columns[n][0]: value for n, value in lists.items() if n > count}
    return function(PYTORCH, word)(*(lists[n] for n in range(count)), **behind, **spelled)


def common(api: str, own: str, column: list[str]) -> str:
    """Return PyTorch's name of a parameter; ``column`` has the names that its overloads use at that position."""
    words = (item.rstrip("*").split("|") for item in TABLE.source.arguments.get(api, ()))
    known = next((item for item in words if own in item), [own])
    return next(word for word in known if word in column)


def both(api: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    outputs = function(MINDSPORE, api)(
        *(given(value, Tensor) for value in positional),
        **{name: given(value, Tensor) for name, value in keywords.items()},
    )
    return arrays(outputs), arrays(in_torch(api, positional, keywords))


def agree(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(one, other)
    )


@pytest.mark.parametrize(("api", "positional", "keywords"), CALLS, ids=lambda value: str(value)[:40])
def test_a_pair_gives_the_same_values(api: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    assert agree(*both(api, positional, keywords))


@pytest.mark.parametrize(("api", "positional", "keywords"), UNEQUAL, ids=lambda value: str(value)[:40])
def test_a_known_difference_is_one_and_is_told(api: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    assert not agree(*both(api, positional, keywords))
    assert any(TABLE.source.word(api) in hint.names for hint in TABLE.hints)


def test_every_name_exists_in_its_framework() -> None:
    lacking = [name for name in TABLE.source.apis if not name.startswith("Primitive.") and not exists(MINDSPORE, name)]
    lacking += [word for word in TABLE.source.apis.values() if not exists(PYTORCH, word)]
    lacking += [name for pair in TABLE.target.apis.items() for name in pair if not exists(PYTORCH, name)]
    lacking += [name for name in TABLE.target.composites if not exists(PYTORCH, name)]
    assert lacking == []


def exists(scopes: dict[str, Any], name: str) -> bool:
    scope, bare = name.split(".")
    return hasattr(scopes[scope], bare)


def test_every_mint_function_that_torch_has_by_name_is_paired() -> None:
    for scope, owner, other in (
        ("Mint", mint, torch),
        ("MintFunctional", mint.nn.functional, torch.nn.functional),
    ):
        for name in owner.__all__:
            if not inspect.isclass(getattr(owner, name, type)) and callable(getattr(other, name, None)):
                assert f"{scope}.{name}" in TABLE.source.apis


@pytest.mark.parametrize(
    ("cell", "arguments"),
    [("BatchNorm1d", (4,)), ("BatchNorm2d", (4,)), ("BatchNorm3d", (4,)), ("LayerNorm", ([4],)), ("GroupNorm", (2, 4)),
     ("Embedding", (5, 4)), ("PReLU", ()), ("Dense", (3, 4)), ("Conv2d", (3, 4, 3)), ("Conv2dTranspose", (3, 4, 3)),
     ("LSTM", (3, 4)), ("MultiheadAttention", (4, 2))],
)  # fmt: skip
def test_parameters_have_partners_of_their_shape(cell: str, arguments: tuple[Any, ...]) -> None:
    own = {name: tuple(value.shape) for name, value in getattr(nn, cell)(*arguments).parameters_and_names()}
    module = getattr(torch.nn, TABLE.source.classes.get(cell, cell))(*arguments)
    theirs = {name: tuple(value.shape) for name, value in [*module.named_parameters(), *module.named_buffers()]}
    known = TABLE.source.slots.get(cell)
    for name, shape in own.items():
        partner = name if known is None or known.parameters is None else known.parameters[name]
        assert theirs[partner] == shape


def test_the_file_is_what_the_generator_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    home = Path(names.__file__).parent
    script = ROOT / "plugins" / "mindspore" / "make_names.py"
    spec = importlib.util.spec_from_file_location("make_names", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NAMES_DIRECTORY", tmp_path)
    module.main()
    assert yaml.safe_load((tmp_path / "apis.yaml").read_text()) == yaml.safe_load((home / "apis.yaml").read_text())
