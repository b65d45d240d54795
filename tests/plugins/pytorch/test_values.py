"""Recorded values: the table of the format, tensors and their classes."""

from __future__ import annotations

import collections
import dataclasses
import enum
import faulthandler
import json
import math
import os
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.storage.host_bytes import CHECKSUMS
from probe_pytorch.values import TorchCollector
from probe_recording.values.leaves import encode
from support.runs.values import DENSE, STATISTICS, Pair, Point, Saved, Wrapper, int_leaf, leaf, tree
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

# -- the table of the format ---------------------------------------------------------------------------


class Tone(str, enum.Enum):
    HIGH = "high"


class Number(enum.IntEnum):
    THREE = 3


class Plain(enum.Enum):
    ONE = 1


class Whole(int):
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: Any


TABLE: list[tuple[Any, Any]] = [
    (7, {"type": "int", "value": 7}),
    (2**100, {"type": "int", "value": 2**100}),
    (1.5, {"type": "float", "value": 1.5}),
    (-math.inf, {"type": "float", "value": -math.inf}),
    (True, {"type": "bool", "value": True}),
    ("mean", {"type": "str", "value": "mean"}),
    ("ä\ud800\"\n", {"type": "str", "value": "ä\ud800\"\n"}),
    ("", {"type": "str", "value": ""}),
    (None, None),
    (3 + 4j, None),
    (b"x", None),
    (range(3), None),
    (object(), None),
    (int, None),
    (len, None),
    (Plain.ONE, None),
    (torch.strided, None),
    (Whole(5), {"type": "int", "value": 5}),
    (Number.THREE, {"type": "int", "value": 3}),
    (slice(1, None, 2), {"type": "slice", "value": [1, None, 2]}),
    (slice(None), {"type": "slice", "value": [None, None, None]}),
    (slice(torch.tensor(4), np.int64(9)), {"type": "slice", "value": [4, 9, None]}),
    (slice(1.7, "x"), {"type": "slice", "value": [1, None, None]}),
    (Ellipsis, {"type": "ellipsis", "value": "..."}),
    (torch.Size([2, 3]), {"type": "torch.Size", "value": [2, 3]}),
    (torch.Size([]), {"type": "torch.Size", "value": []}),
    (torch.bfloat16, None),  # told by its keyword alone, as the next one
    (torch.device("meta", 0), None),
    (torch.contiguous_format, {"type": "torch.memory_format", "format": "contiguous_format"}),
    (torch.channels_last, {"type": "torch.memory_format", "format": "channels_last"}),
    (np.float32(1.5), {"type": "float32", "value": 1.5}),
    (np.float64(1.5), {"type": "float64", "value": 1.5}),
    (np.int8(-3), {"type": "int8", "value": -3}),
    (np.bool_(True), {"type": "bool", "value": True}),
    (np.complex64(1), None),
    ([], []),
    ((), []),
    ({}, {}),
    ([1, (2, [None])], [int_leaf(1), [int_leaf(2), [None]]]),
    ({5}, [int_leaf(5)]),
    (frozenset({5}), [int_leaf(5)]),
    ({"a": 1, "b": {"c": [2]}}, {"a": int_leaf(1), "b": {"c": [int_leaf(2)]}}),
    (collections.OrderedDict(b=1, a=2), {"b": int_leaf(1), "a": int_leaf(2)}),
    (collections.defaultdict(list, a=1), {"a": int_leaf(1)}),
    (collections.UserDict(a=1), {"a": int_leaf(1)}),
    (types.MappingProxyType({"a": 1}), {"a": int_leaf(1)}),
    ({1: 2, (0, 1): 3, None: 4, 1.5: 5}, {"1": int_leaf(2), "(0, 1)": int_leaf(3), "None": int_leaf(4), "1.5": int_leaf(5)}),
    (Pair(1, [2]), {"left": int_leaf(1), "right": [int_leaf(2)]}),
    (Point(1, Point(2)), {"x": int_leaf(1), "y": {"x": int_leaf(2), "y": None}}),
    (Slotted(3), {"x": int_leaf(3)}),
    (Point, None),
    (torch.max(torch.tensor([[1, 3]]), 1), [leaf("int64", [1], (3, 3, 3.0, 3.0)), leaf("int64", [1], (1, 1, 1.0, 1.0))]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), TABLE, ids=lambda value: f"{type(value).__name__}")
def test_table(value: Any, expected: Any) -> None:
    found = tree(value)
    assert found == expected
    assert json.dumps(found) == json.dumps(expected)  # 1, 1.0 and True are different; so is the order


def test_nan_stays_nan() -> None:
    found = tree(math.nan)
    assert found["type"] == "float" and math.isnan(found["value"])


def test_an_enumeration_of_texts_is_a_text() -> None:
    found = tree(Tone.HIGH)
    assert found["type"] == "str" and "HIGH" in found["value"].upper()


def test_order_of_the_fields() -> None:
    collector = TorchCollector(CHECKSUMS["md5"])
    found = json.loads(encode(collector.tree(torch.ones(2), "x", Saved())))
    assert list(found) == ["type", "dtype", "shape", *STATISTICS, "requires_grad", "md5", "data_name"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(torch.float16, {"type": "torch.dtype", "value": "torch.float16"}),
     (torch.int64, {"type": "torch.dtype", "value": "torch.int64"}),
     ("float32", {"type": "torch.dtype", "value": "float32"}),
     (float, {"type": "torch.dtype", "value": "<class 'float'>"}), (None, None)],
)  # fmt: skip
def test_dtype_is_told_by_the_keyword(value: Any, expected: Any) -> None:
    assert TorchCollector().keywords({"dtype": value, "out": None}, "x", None) == {"dtype": expected, "out": None}
    assert tree({"dtype": value}) == {"dtype": expected}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(torch.device("cuda", 1), "cuda:1"), (torch.device("cpu"), "cpu:None"), (3, 3), ("npu:0", "npu:0")],
)  # fmt: skip
def test_device_is_told_by_the_keyword(value: Any, shown: Any) -> None:
    expected = {"device": {"type": "torch.device", "value": shown}}
    assert TorchCollector().keywords({"device": value}, "x", None) == expected
    assert TorchCollector().keywords({"device": None}, "x", None) == {"device": None}


def test_a_device_of_a_strangers_can_be_written() -> None:
    json.loads(encode(TorchCollector().keywords({"device": object()}, "x", None)))


@pytest.mark.parametrize(
    ("array", "four"),
    [(np.array([[1.5, -2.0]], np.float32), (1.5, -2.0, -0.25, 2.5)), (np.array([3, 4], np.int16), (4, 3, 3.5, 5.0)),
     (np.array([2**63 + 1, 0], np.uint64), (2**63 + 1, 0, 2.0**62, 2.0**63)),
     (np.array([60000.0] * 4, np.float16), (60000.0, 60000.0, 60000.0, 120000.0)),
     (np.array([True, False]), (True, False, None, None)), (np.array(5), (5, 5, 5.0, 5.0)),
     (np.array([], np.float32), (None,) * 4), (np.array([1j]), (None,) * 4), (np.array(["a"]), (None,) * 4),
     (np.array([object()]), (None,) * 4), (np.arange(6.0).reshape(2, 3).T, (5.0, 0.0, 2.5, math.sqrt(55)))],
    ids=lambda value: str(getattr(value, "dtype", "")),
)  # fmt: skip
def test_numpy_arrays(array: Any, four: Any) -> None:
    found = tree(array)
    assert list(found) == ["type", "dtype", "shape", *STATISTICS]
    assert (found["type"], found["dtype"], found["shape"]) == (
        "numpy.ndarray",
        str(array.dtype),
        list(array.shape),
    )
    assert [found[name] for name in STATISTICS] == pytest.approx(four)
    assert [type(found[name]) for name in STATISTICS] == [type(value) for value in four]


def test_nan_in_a_numpy_array() -> None:
    found = tree(np.array([1.0, math.nan]))
    assert all(math.isnan(found[name]) for name in STATISTICS)


@pytest.mark.parametrize("values", [[1e200, 1.0], [math.inf, -math.inf]], ids=str)
def test_numpy_does_not_warn(values: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tree(np.array(values))["Max"] == max(values)


# -- tensors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([[3.0, -4.0]]), leaf("float32", [1, 2], (3.0, -4.0, -0.5, 5.0))),
        (
            torch.tensor([[3.0, -4.0]], requires_grad=True),
            leaf("float32", [1, 2], (3.0, -4.0, -0.5, 5.0), True),
        ),
        (nn.Parameter(torch.tensor([3.0, -4.0])), leaf("float32", [2], (3.0, -4.0, -0.5, 5.0), True)),
        (torch.tensor(2), leaf("int64", [], (2, 2, 2, 2))),
        (torch.tensor([True, False]), leaf("bool", [2], (True, False, None, None))),
        (torch.tensor([3 + 4j]), leaf("complex64", [1], (5.0, 5.0, 5.0, None))),
        (torch.empty(0, 3), leaf("float32", [0, 3])),
        (torch.empty(2, 3, device="meta"), leaf("float32", [2, 3])),
        (torch.tensor([3.0, -4.0]).bfloat16(), leaf("bfloat16", [2], (3.0, -4.0, -0.5, 5.0))),
        (torch.tensor([1.0]).expand(4), leaf("float32", [4], (1.0, 1.0, 1.0, 2.0))),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_tensors(tensor: torch.Tensor, expected: Any) -> None:
    found = tree(tensor)
    assert json.dumps(found) == json.dumps(expected)


def test_a_fake_tensor_has_a_shape_and_nothing_else() -> None:
    saved = Saved()
    with FakeTensorMode():
        fake = torch.ones(2, 3)
        inside = json.loads(encode(TorchCollector().tree([fake, nn.Parameter(fake)], "x", saved)))
    expected = {**leaf("float32", [2, 3]), "type": "FakeTensor"}
    assert inside == [expected, {**expected, "requires_grad": True}]
    assert json.loads(encode(TorchCollector().tree(fake, "x", saved))) == expected
    assert not saved.tensors


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors_are_what_they_store(layout: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = DENSE.to_sparse(layout=getattr(torch, layout))
    saved = Saved()
    found = json.loads(encode(TorchCollector(CHECKSUMS["md5"]).tree(sparse, "x", saved)))
    assert found == leaf("float32", [2, 3], (3.0, -4.0, -0.5, 5.0), layout=f"torch.{layout}")
    assert not saved.tensors
    if layout == "sparse_coo":
        assert tree(sparse.clone().requires_grad_())["requires_grad"] is True
        twice = torch.sparse_coo_tensor(
            [[1, 1]], [3.0, -4.0], (3,), check_invariants=True
        )  # not coalesced, and stays so
        assert [tree(twice)[name] for name in STATISTICS] == [3.0, -4.0, -0.5, 5.0]
        assert not twice.is_coalesced()


def test_sparse_tensors_without_elements() -> None:
    assert tree(torch.zeros(2, 2).to_sparse()) == leaf("float32", [2, 2], layout="torch.sparse_coo")


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_tensors_are_what_they_stand_for(per_channel: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = (
            torch.quantize_per_channel(DENSE, torch.tensor([0.5, 0.5]), torch.tensor([0, 0]), 0, torch.qint8)
            if per_channel
            else torch.quantize_per_tensor(DENSE, 0.5, 3, torch.qint8)
        )
        found = tree(quantised)
    expected = (3.0, -4.0, pytest.approx(-1 / 6), 5.0)
    assert found == leaf("qint8", [2, 3], expected, layout="quantized")


def nested(layout: str) -> torch.Tensor:
    keywords = {} if layout == "strided" else {"layout": getattr(torch, layout)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.tensor([3.0]), torch.tensor([-4.0, 1.0])], **keywords)


@pytest.mark.parametrize(
    ("layout", "places", "expected"), [("jagged", "offsets", [0, 1, 3]), ("strided", "sizes", [[1], [2]])]
)
def test_nested_tensor_is_recorded_by_its_values_and_their_places(layout: str, places: str, expected: Any) -> None:
    if layout == "jagged" and not hasattr(torch, "jagged"):
        pytest.skip("this torch has no jagged layout")
    saved = Saved()
    found = json.loads(encode(TorchCollector().tree(nested(layout), "x", saved)))
    values = leaf("float32", [3], (3.0, -4.0, 0.0, pytest.approx(math.sqrt(26))), layout=f"torch.{layout}")
    assert found["values"] == {**values, "data_name": "x.values.pt"}
    assert list(found) == ["values", places]
    assert saved.tensors["x.values"].tolist() == [3.0, -4.0, 1.0]
    assert saved.tensors[f"x.{places}"].tolist() == expected
    assert tree(nested(layout).requires_grad_())["values"]["requires_grad"] is True


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.arange(4.0)[::-1], np.array(5.0),
     np.broadcast_to(np.float32(2), (3,)), np.array([True, False])],
    ids=["plain", "transposed", "reversed", "0-d", "read-only", "bool"],
)  # fmt: skip
def test_numpy_array_is_stored_as_a_tensor(array: Any) -> None:
    saved = Saved()
    found = json.loads(encode(TorchCollector(CHECKSUMS["md5"]).tree([array], "x", saved)))[0]
    assert saved.tensors["x.0"].tolist() == array.tolist()
    assert found["md5"] == CHECKSUMS["md5"](saved.tensors["x.0"])


def test_numpy_array_of_another_kind_is_not_stored() -> None:
    saved = Saved()
    TorchCollector().tree([np.array(["a"]), np.array([object()]), np.zeros((0, 2))], "x", saved)
    assert not saved.tensors


def test_mkldnn_tensors_are_a_leaf() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without mkldnn")
    assert tree(DENSE.to_mkldnn())["shape"] == [2, 3]


@pytest.mark.parametrize("kind", [nn.UninitializedParameter, nn.UninitializedBuffer])
def test_uninitialised_parameters_are_a_leaf(kind: type[torch.Tensor]) -> None:
    assert tree([kind(), 1])[1] == int_leaf(1)


def unusual(name: str) -> Any:
    return name


@pytest.mark.parametrize(
    "name", [unusual(n) for n in ("float4_e2m1fn_x2", "uint4", "int4", "bits8") if hasattr(torch, n)]
)
@pytest.mark.parametrize("shape", [(2,), ()], ids=str)
def test_types_that_torch_cannot_compute_with_are_a_leaf(name: str, shape: tuple[int, ...]) -> None:
    raw = torch.zeros(2, dtype=torch.uint8).view(getattr(torch, name))
    assert tree(raw if shape else raw[0]) == leaf(name, list(shape))


def exit_code(function: Callable[[], Any]) -> int:
    """Of a child in which ``function`` runs, for what may take the process with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a process with threads is forked; the child is short
        child = os.fork()
    if not child:
        faulthandler.disable()
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool", "complex64", "uint16", "float8_e5m2"])
@pytest.mark.parametrize("part", ["whole", "view", "scalar"])
def test_tensors_whose_memory_was_freed_are_a_leaf(part: str, name: str) -> None:
    """Null-storage tensors have no statistics and are not saved (docs/formats.md#leaves)."""
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no dtype {name}")
    tensor = torch.ones(8).to(getattr(torch, name))
    tensor = {"whole": tensor, "view": tensor[3:], "scalar": tensor[2]}[part]
    tensor.untyped_storage().resize_(0)

    def check() -> None:
        assert tree(tensor) == leaf(name, list(tensor.shape))

    assert exit_code(check) == 0


# -- classes of tensors ----------------------------------------------------------------------------------


class Silent(torch.Tensor):
    """Nothing of torch may be asked of it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was asked")


class Watching(torch.Tensor):
    """Has data, and counts what is computed with it."""

    seen = 0

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen += 1
        with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
            return func(*args, **(kwargs or {}))


class MyParameter(nn.Parameter):
    pass


def test_subclasses_with_data_are_tensors() -> None:
    expected = leaf("float32", [2], (3.0, -4.0, -0.5, 5.0))
    data = torch.tensor([3.0, -4.0])
    saved = Saved()
    assert tree(data.as_subclass(Silent)) == expected
    assert tree(MyParameter(data)) == {**expected, "requires_grad": True}
    found = json.loads(encode(TorchCollector().tree(data.as_subclass(Silent), "x", saved)))
    assert found == {**expected, "data_name": "x.pt"}
    assert type(saved.tensors["x"]) is torch.Tensor and torch.equal(saved.tensors["x"], data)


def test_a_wrapper_has_a_shape_and_nothing_else() -> None:
    saved = Saved()
    found = json.loads(encode(TorchCollector().tree(Wrapper(torch.ones(2, 3)), "x", saved)))
    assert found == {**leaf("float32", [2, 3]), "type": "Wrapper"}
    assert not saved.tensors


def test_a_subclass_does_not_see_the_recorder() -> None:
    watching = torch.Tensor._make_subclass(Watching, torch.tensor([3.0, -4.0]))  # type: ignore[attr-defined]
    Watching.seen = 0
    assert tree(watching)["Max"] == 3.0
    assert Watching.seen == 0


def test_a_tensor_inside_vmap_has_a_shape_only() -> None:
    found: list[Any] = []
    saved = Saved()

    def look(x: torch.Tensor) -> torch.Tensor:
        found.append(json.loads(encode(TorchCollector(CHECKSUMS["md5"]).tree([x, torch.ones(2)], "x", saved))))
        return x * 2

    torch.vmap(look)(torch.ones(3, 4))
    assert found[0][0] == leaf("float32", [4])
    assert found[0][1]["Max"] == 1.0 and list(saved.tensors) == ["x.1"]


def test_inside_other_transforms() -> None:
    found: list[Any] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        found.append(tree(x))
        return (x * x).sum()

    torch.func.grad(look)(torch.ones(3))
    torch.func.vmap(torch.func.grad(look))(torch.ones(2, 3))
    assert [leaf["shape"] for leaf in found] == [[3], [3]]
