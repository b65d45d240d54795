"""Recorded values: containers and strangers, none of which is changed."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from probe_pytorch.storage.host_bytes import CHECKSUMS
from probe_pytorch.values import TorchCollector
from probe_recording.values.collector import MAX_CONTAINERS, MAX_DEPTH
from support.runs.records import record_of
from support.runs.values import DENSE, Pair, Point, Saved, int_leaf, leaf, tree
from torch import nn

# -- containers of all kinds -----------------------------------------------------------------------------


def test_model_outputs_are_their_fields() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    output = outputs.BaseModelOutput(last_hidden_state=torch.ones(1, 2), hidden_states=(torch.zeros(1), torch.ones(1)))
    found = tree(output)
    assert list(found) == ["last_hidden_state", "hidden_states"]  # what is None is no key of theirs
    assert found["last_hidden_state"] == leaf("float32", [1, 2], (1.0, 1.0, 1.0, math.sqrt(2)))
    assert [item["Max"] for item in found["hidden_states"]] == [0.0, 1.0]


def test_a_generator_is_not_consumed() -> None:
    steps = iter([1, 2, 3])
    generator = (i for i in range(3))
    assert tree([steps, generator, map(str, [1]), zip([1], [2])]) == [None] * 4
    assert list(steps) == [1, 2, 3] and list(generator) == [0, 1, 2]


def deep(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 7
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap",
    [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: Pair(v, None), lambda v: Point(v)],
    ids=["list", "tuple", "dict", "namedtuple", "dataclass"],
)  # fmt: skip
def test_deep_nesting_ends_in_null(wrap: Callable[[Any], Any]) -> None:
    def bottom(found: Any) -> tuple[int, Any]:
        count = 0
        while isinstance(found, (list, dict)) and found and found != int_leaf(7):
            found = found[0] if isinstance(found, list) else next(iter(found.values()))
            count += 1
        return count, found

    assert bottom(tree(deep(MAX_DEPTH, wrap))) == (MAX_DEPTH, int_leaf(7))
    assert bottom(tree(deep(5 * MAX_DEPTH, wrap))) == (MAX_DEPTH + 1, None)
    assert MAX_DEPTH >= 100


def test_a_list_that_holds_itself_ends() -> None:
    value: list[Any] = [1]
    value.append(value)
    found = tree(value)
    assert found == [int_leaf(1), None]


class Endless(BaseException):
    pass


class Counted(list[Any]):
    """Counts how often it is walked over, and ends what does not end."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.count += 1
        if Counted.count > 20_000:
            raise Endless
        return super().__iter__()


@dataclasses.dataclass
class Node:
    parent: Any
    children: Any


@pytest.mark.parametrize("shape", ["twice in itself", "parents and children"])
def test_cycles_do_not_multiply(shape: str) -> None:
    Counted.count = 0
    value = Counted()
    if shape == "twice in itself":
        value.extend([value, value])
        tree(value)
    else:
        root = Node(None, value)
        value.extend(Node(root, Counted()) for _ in range(2))
        tree(root)


def test_what_holds_the_same_again_and_again_ends() -> None:
    value: Any = [1]
    for _ in range(60):  # 2**60 ways to the bottom
        value = [value, value]
    found = tree(value)
    assert found[0] is not None
    many = tree([[number] for number in range(MAX_CONTAINERS + 5)])
    assert (many[0], many[-1], len(many)) == ([int_leaf(0)], None, MAX_CONTAINERS + 5)
    assert tree([many[0], [[[1]]]])  # the next value begins anew


def keyed(*keys: str) -> Any:
    return {key: torch.ones(1) for key in keys}


class Token(NamedTuple):
    type: Any
    value: Any


def blind(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "value",
    [keyed("value"), keyed("type", "value"), {"class_type": torch.ones(1)}, blind(keyed("type")),
     blind(keyed("type", "dtypes")), blind({"type": {"a": torch.ones(1)}}), blind({"a": keyed("type", "format")}),
     blind(Token(torch.ones(1), torch.ones(1))), blind(Token(1, torch.ones(1))),
     blind({"type": "torch.Tensor", "a": torch.ones(1)})],
    ids=repr,
)  # fmt: skip
def test_keys_that_look_like_a_leaf(value: Any) -> None:
    """Every tensor comes back from the reader."""
    fields = {"input_args": [tree(value)], "input_kwargs": {}, "output": []}
    slots = record_of(0, "Torch.f.0.forward", fields).slots
    assert sum(slot.value.dtype == "torch.float32" for slot in slots) == repr(value).count("tensor(")


def test_scalars_under_keys_that_look_like_a_leaf() -> None:
    fields = {"input_args": [tree({"type": 3, "value": 4})], "input_kwargs": {}, "output": []}
    slots = record_of(0, "Torch.f.0.forward", fields).slots
    assert sorted(str(slot.value.statistics.max) for slot in slots) == ["3", "4"]


def test_keys_that_read_alike_are_both_kept() -> None:
    assert len(tree({1: torch.ones(1), "1": torch.zeros(1)})) == 2


# -- strangers -------------------------------------------------------------------------------------------


class Refused(Exception):
    pass


def refuse(*_: Any, **__: Any) -> Any:
    raise Refused


UNASKED = ("__eq__", "__ne__", "__bool__", "__len__", "__hash__", "__repr__", "__str__", "__getattr__", "__contains__",
           "__getitem__", "__index__", "__float__", "__int__", "__call__", "__array__", "__copy__", "__dir__")  # fmt: skip


def hostile(base: type, *but: str) -> type:
    """A class whose objects want to be left alone."""
    return type(f"Hostile{base.__name__}", (base,), {name: refuse for name in UNASKED if name not in but})


def test_strangers_are_asked_for_nothing() -> None:
    one = torch.ones(1)
    assert tree(hostile(object)()) is None
    assert tree([hostile(object, "__hash__")(), 1]) == [None, int_leaf(1)]
    assert tree(hostile(list)([1, one]))[0] == int_leaf(1)
    assert tree(hostile(tuple)([1, 2])) == [int_leaf(1), int_leaf(2)]
    assert tree(hostile(dict, "__repr__")(a=1)) == {"a": int_leaf(1)}
    assert tree(hostile(set)([1])) == [int_leaf(1)]
    assert tree(hostile(Point)(1, 2)) == {"x": int_leaf(1), "y": int_leaf(2)}
    assert tree(hostile(Pair, "__len__")(1, 2)) == {"left": int_leaf(1), "right": int_leaf(2)}


def test_a_mapping_is_walked_by_its_items() -> None:
    class Overridden(dict[str, Any]):
        items = keys = values = __iter__ = refuse  # type: ignore[assignment]

    assert tree(Overridden(a=1)) == {"a": int_leaf(1)}


class BadList(list[Any]):
    __iter__ = refuse


class BadMapping(collections.UserDict[str, Any]):
    __getitem__ = refuse


class BadKey:
    __repr__ = refuse


class BadText(str):
    __str__ = refuse


class BadClass:
    __class__ = property(refuse)  # type: ignore[assignment]


@dataclasses.dataclass
class BadField:
    x: int

    def __getattr__(self, name: str) -> Any:
        raise Refused


@pytest.mark.parametrize(
    "make",
    [lambda: BadList([1]), lambda: BadMapping(a=1), lambda: {BadKey(): 1}, lambda: BadText("x"), BadClass,
     lambda: BadField.__new__(BadField), lambda: hostile(Pair)(1, 2)],
    ids=["list", "mapping", "key", "text", "class", "field", "length"],
)  # fmt: skip
def test_a_stranger_costs_its_leaf_and_no_more(make: Callable[[], Any]) -> None:
    assert tree([1, make(), 2])[::2] == [int_leaf(1), int_leaf(2)]


# -- nothing is changed ----------------------------------------------------------------------------------


def test_nothing_is_changed() -> None:
    torch.manual_seed(0)
    base = torch.rand(4, 4, requires_grad=True)
    result = base.t() * 2
    values: list[Any] = [base, result, result[1:, ::2], base.detach(), torch.arange(4), torch.rand(3) > 0.5,
                         torch.tensor([1j]).conj(), nn.Parameter(torch.ones(2, dtype=torch.float16)),
                         DENSE.to_sparse(), np.arange(3.0)]  # fmt: skip
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    random = torch.get_rng_state()

    def state() -> list[Any]:
        return [
            (t._version, t.requires_grad, t.is_leaf and t.grad, t.grad_fn, t.is_conj(), t._backward_hooks,
             t.stride() if t.layout is torch.strided else None)
            for t in tensors
        ]  # fmt: skip

    before, copies = state(), [t.detach().clone() for t in tensors]
    saved = Saved()
    collector = TorchCollector(CHECKSUMS["xxh3"])
    container = {"a": values, "b": Pair(base, Point(result))}
    for _ in range(2):
        collector.tree(container, "x", saved)
    assert state() == before
    for tensor, copy in zip(tensors, copies):
        same = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
        assert torch.equal(same, copy.to_dense() if copy.is_sparse else copy)
    assert torch.equal(torch.get_rng_state(), random)
    assert list(container) == ["a", "b"] and container["a"] is values
    result.sum().backward()
    assert base.grad is not None and torch.equal(base.grad, torch.full((4, 4), 2.0))
