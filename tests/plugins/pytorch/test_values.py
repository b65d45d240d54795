"""What each object becomes in a record (spec/dump 8), and that recording it changes nothing."""

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
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
import xxhash
from probe_pytorch.storage.bytes import CHECKSUMS
from probe_pytorch.values import Collector
from probe_recording.leaves import encode
from probe_recording.reading.leaves import record_of
from probe_recording.values import DEPTH, MOST
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

STATISTICS = ("Max", "Min", "Mean", "Norm")


def tree(value: Any, collector: Collector | None = None) -> Any:
    """The JSON of ``value``, as a reader finds it."""
    return json.loads(encode((collector or Collector()).tree(value, "x")))


def leaf(dtype: str, shape: list[int], four: Any = (None,) * 4, grad: bool = False, **more: Any) -> Any:
    return {
        "type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": shape, **dict(zip(STATISTICS, four)),
        "requires_grad": grad, **more,
    }  # fmt: skip


def int_leaf(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}


class Saved:
    """What a store was given."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def __call__(self, name: str, tensor: torch.Tensor) -> str:
        self.tensors[name] = tensor
        return f"{name}.pt"


# -- the table of the format ---------------------------------------------------------------------------


class Tone(str, enum.Enum):
    HIGH = "high"


class Number(enum.IntEnum):
    THREE = 3


class Plain(enum.Enum):
    ONE = 1


class Whole(int):
    pass


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


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
    collector = Collector(CHECKSUMS["md5"])
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
    assert Collector().keywords({"dtype": value, "out": None}, "x", None) == {"dtype": expected, "out": None}
    assert tree({"dtype": value}) == {"dtype": expected}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(torch.device("cuda", 1), "cuda:1"), (torch.device("cpu"), "cpu:None"), (3, 3), ("npu:0", "npu:0")],
)  # fmt: skip
def test_device_is_told_by_the_keyword(value: Any, shown: Any) -> None:
    expected = {"device": {"type": "torch.device", "value": shown}}
    assert Collector().keywords({"device": value}, "x", None) == expected
    assert Collector().keywords({"device": None}, "x", None) == {"device": None}


def test_a_device_of_a_strangers_can_be_written() -> None:
    json.loads(encode(Collector().keywords({"device": object()}, "x", None)))


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
        inside = json.loads(encode(Collector().tree([fake, nn.Parameter(fake)], "x", saved)))
    expected = {**leaf("float32", [2, 3]), "type": "FakeTensor"}
    assert inside == [expected, {**expected, "requires_grad": True}]
    assert json.loads(encode(Collector().tree(fake, "x", saved))) == expected
    assert not saved.tensors


DENSE = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, -4.0]])


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors_are_what_they_store(layout: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = DENSE.to_sparse(layout=getattr(torch, layout))
    saved = Saved()
    found = json.loads(encode(Collector(CHECKSUMS["md5"]).tree(sparse, "x", saved)))
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


def nested(layout: Any) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.tensor([3.0]), torch.tensor([-4.0, 1.0])], layout=layout)


def test_jagged_nested_tensors_are_seen() -> None:
    found = tree(nested(torch.jagged))
    assert (found["type"], found["dtype"], found["shape"][0]) == ("NestedTensor", "torch.float32", 2)


def test_jagged_nested_tensors_are_what_they_store() -> None:
    found = tree(nested(torch.jagged))
    assert [found[name] for name in STATISTICS] == pytest.approx([3.0, -4.0, 0.0, math.sqrt(26)])


def test_strided_nested_tensors_are_a_leaf() -> None:
    assert tree(nested(torch.strided))["dtype"] == "torch.float32"


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
@pytest.mark.parametrize(
    "name", ["float32", "bfloat16", "int64", "bool", "complex64", "uint16", "float8_e5m2"]
)
@pytest.mark.parametrize("part", ["whole", "view", "scalar"])
def test_tensors_whose_memory_was_freed_are_a_leaf(part: str, name: str) -> None:
    """Null-storage tensors have no statistics and are not saved (spec/dump 8)."""
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


class Wrapper(torch.Tensor):
    """Keeps its data in another tensor."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        found: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        found.inner = inner
        return found

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was called")


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
    found = json.loads(encode(Collector().tree(data.as_subclass(Silent), "x", saved)))
    assert found == {**expected, "data_name": "x.pt"}
    assert type(saved.tensors["x"]) is torch.Tensor and torch.equal(saved.tensors["x"], data)


def test_a_wrapper_has_a_shape_and_nothing_else() -> None:
    saved = Saved()
    found = json.loads(encode(Collector().tree(Wrapper(torch.ones(2, 3)), "x", saved)))
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
        found.append(json.loads(encode(Collector(CHECKSUMS["md5"]).tree([x, torch.ones(2)], "x", saved))))
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


# -- of torch.distributed --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """A group of this process alone."""
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


NUMBER = str(zlib.crc32(b"[0]"))


def test_process_group(group: Any) -> None:
    assert tree(group) == {"type": "torch.ProcessGroup", "group_ranks": [0], "group_id": NUMBER}


@pytest.mark.parametrize("name", ["SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND"])
def test_reduce_op(name: str) -> None:
    dist = pytest.importorskip("torch.distributed")
    expected = {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{name}"}
    operation = getattr(dist.ReduceOp, name)
    assert tree(operation) == expected
    assert tree(dist.ReduceOp(operation)) == expected


def test_point_to_point(group: Any) -> None:
    dist = torch.distributed
    saved = Saved()
    found = json.loads(
        encode(Collector().tree([dist.P2POp(dist.isend, torch.ones(2), 0, tag=3)], "x", saved))
    )[0]
    assert list(found) == ["class_type", "tensor", "op", "peer", "tag", "group_id"]
    assert (found["class_type"], found["op"], found["group_id"]) == (
        "torch.distributed.P2POp",
        "isend",
        NUMBER,
    )
    assert found["tensor"] == leaf("float32", [2], (1.0, 1.0, 1.0, math.sqrt(2)), data_name="x.0.tensor.pt")


def test_point_to_point_has_plain_numbers(group: Any) -> None:
    dist = torch.distributed
    found = tree(dist.P2POp(dist.irecv, torch.ones(2), 0, tag=3))
    assert (found["peer"], found["tag"]) == (0, 3)


def test_distributed_tensor(group: Any) -> None:
    distributed = pytest.importorskip("torch.distributed.tensor")
    mesh = distributed.init_device_mesh("cpu", (1,))
    local = torch.tensor([[3.0], [-4.0]])
    saved = Saved()
    sharded = distributed.DTensor.from_local(local, mesh, [distributed.Shard(0)])
    found = json.loads(encode(Collector().tree([sharded, nn.Parameter(sharded)], "x", saved)))
    assert [item["type"] for item in found] == ["torch.distributed.tensor.DTensor"] * 2
    assert [item["requires_grad"] for item in found] == [False, True]
    for at, item in enumerate(found):
        assert [item[name] for name in STATISTICS] == [3.0, -4.0, -0.5, 5.0]
        assert (item["shape"], item["device_mesh"], item["data_name"]) == ([2, 1], [0], f"x.{at}.pt")
        assert len(item["placements"]) == 1
    assert torch.equal(saved.tensors["x.0"], local)


def test_a_collective_that_goes_on_is_not_waited_for(group: Any) -> None:
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    running = functional.all_reduce(torch.ones(3), "sum", group)
    if type(running).__name__ != "AsyncCollectiveTensor":
        pytest.skip("this torch waits by itself")
    assert tree(running) == {**leaf("float32", [3]), "type": "AsyncCollectiveTensor"}
    assert not running.completed
    running.wait()


# -- names of files --------------------------------------------------------------------------------------


def test_names_follow_the_path() -> None:
    one = torch.ones(1)
    saved = Saved()
    collector = Collector()
    collector.arguments(
        (one, [2, {"k": one}], Pair(one, Point(one)), {"a.b": [one]}), "Torch.f.0.forward.input", saved
    )
    collector.keywords({"mask": one, "many": (one, one)}, "Torch.f.0.forward.kwargs", saved)
    assert [name.removeprefix("Torch.f.0.forward.") for name in saved.tensors] == [
        "input.0", "input.1.1.k", "input.2.left", "input.2.right.x", "input.3.a.b.0", "kwargs.mask",
        "kwargs.many.0", "kwargs.many.1",
    ]  # fmt: skip


def test_what_has_no_data_is_not_saved() -> None:
    saved = Saved()
    values = [
        torch.empty(0),
        torch.empty(2, device="meta"),
        torch.zeros(2, 2).to_sparse(),
        Wrapper(torch.ones(1)),
    ]
    for item in json.loads(encode(Collector().tree(values, "x", saved))):
        assert "data_name" not in item
    assert not saved.tensors
    assert json.loads(encode(Collector().tree(torch.tensor(1.0), "x", saved)))["data_name"] == "x.pt"


def test_a_tensor_that_could_not_be_stored_has_no_name() -> None:
    found = json.loads(encode(Collector().tree(torch.ones(1), "x", lambda name, tensor: None)))
    assert "data_name" not in found


def test_the_structure_alone() -> None:
    saved = Saved()
    collector = Collector(CHECKSUMS["md5"], measured=False)
    assert json.loads(encode(collector.tree(torch.ones(2), "x", saved))) == leaf("float32", [2])
    assert not saved.tensors


# -- checksums -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["md5", "xxh3"])
@pytest.mark.parametrize(
    "array",
    [np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(12, dtype=np.int16).reshape(3, 4).T,
     np.array([-0.0, math.nan, 1.0]).astype(ml_dtypes.bfloat16), np.array([[True, False]]), np.array(7.0),
     np.arange(10.0)[::2], np.array([1 + 2j, 3j], np.complex64)],
    ids=lambda array: str(array.dtype),
)  # fmt: skip
def test_checksums_are_of_the_bytes_in_row_major_order(array: Any, mode: str) -> None:
    if array.dtype == ml_dtypes.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    data = array.tobytes()  # row-major whatever the strides
    expected = f"{zlib.crc32(data):08x}" if mode == "md5" else xxhash.xxh3_64(data).hexdigest()
    assert tree(tensor, Collector(CHECKSUMS[mode]))["md5"] == expected
    assert (
        tree(
            tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor,
            Collector(CHECKSUMS[mode]),
        )["md5"]
        == expected
    )


def test_checksums_see_conjugates_and_negatives_carried_out() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    for view in (tensor.conj(), tensor.conj().imag, torch._neg_view(torch.ones(3))):  # type: ignore[attr-defined]
        data = np.array(view.tolist(), "c8" if view.is_complex() else "f4").tobytes()
        assert tree(view, Collector(CHECKSUMS["md5"]))["md5"] == f"{zlib.crc32(data):08x}"


def test_a_checksum_keeps_its_zeros() -> None:
    value = next(i for i in range(10_000) if zlib.crc32(bytes([i % 256, i // 256])) < 1 << 24)
    tensor = torch.tensor([value % 256, value // 256], dtype=torch.uint8)
    found = tree(tensor, Collector(CHECKSUMS["md5"]))["md5"]
    assert len(found) == 8 and found[0] == "0" and int(found, 16) == zlib.crc32(bytes(tensor.tolist()))


# -- containers of all kinds -----------------------------------------------------------------------------


def test_model_outputs_are_their_fields() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    output = outputs.BaseModelOutput(
        last_hidden_state=torch.ones(1, 2), hidden_states=(torch.zeros(1), torch.ones(1))
    )
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

    assert bottom(tree(deep(DEPTH, wrap))) == (DEPTH, int_leaf(7))
    assert bottom(tree(deep(5 * DEPTH, wrap))) == (DEPTH + 1, None)
    assert DEPTH >= 100


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
    many = tree([[number] for number in range(MOST + 5)])
    assert (many[0], many[-1], len(many)) == ([int_leaf(0)], None, MOST + 5)
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
    collector = Collector(CHECKSUMS["xxh3"])
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
