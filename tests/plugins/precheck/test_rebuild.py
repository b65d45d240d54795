"""The arguments of recorded calls, rebuilt: plain values, tensors from files, damaged records (guide 4.1, 4.3)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_precheck.rebuild import Unbuildable
from probe_pytorch.precheck.rebuild import Rebuilder, convert_to_tensor, decode_plain_value, load_any
from probe_recording.reading.tensors import open_tensors
from support.cases import every
from support.runs.prechecked import call, leaf, live, value
from support.runs.recorded import tensor

inf, nan = math.inf, math.nan
FLOAT8 = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
]


@pytest.fixture
def rebuilder(tmp_path: Path) -> Rebuilder:
    """Reads the files of ``tmp_path``."""
    return Rebuilder(open_tensors(tmp_path, load_any), 1, 1 << 20)


def rebuilt(
    rebuilder: Rebuilder, *items: Any, api: str = "Torch.cat.0", **keywords: Any
) -> tuple[list[Any], dict[str, Any]]:
    found = rebuilder.rebuild_arguments(call(api, *items, **keywords))
    return found.positional, found.keywords


# plain values


@pytest.mark.parametrize(
    "item",
    [3, -1, 0, 2**62, -(2**63), 2.5, 1e300, 5e-324, inf, -inf, -0.0, True, False, "", "floor", "中文"],
)
def test_plain_values(rebuilder: Rebuilder, item: Any) -> None:
    ((found,), _) = rebuilt(rebuilder, value(item))
    assert (type(found), found) == (type(item), item)
    assert math.copysign(1, found) == math.copysign(1, item) if isinstance(item, float) else True


def test_nan(rebuilder: Rebuilder) -> None:
    assert math.isnan(rebuilt(rebuilder, value(nan))[0][0])


@pytest.mark.parametrize("text, number", [("0x10000000000000000", 2**64), ("-0xff", -255)])
def test_integers_too_long_for_json(rebuilder: Rebuilder, text: str, number: int) -> None:
    assert rebuilt(rebuilder, {"type": "int", "value": text})[0] == [number]


def test_generators_and_none(rebuilder: Rebuilder) -> None:
    assert rebuilt(rebuilder, None, generator=None) == ([None], {"generator": None})


@pytest.mark.parametrize(
    "description, expected",
    [
        ({"type": "torch.Size", "value": [2, 3]}, torch.Size([2, 3])),
        ({"type": "torch.Size", "value": []}, torch.Size([])),
        ({"type": "slice", "value": [1, 7, 2]}, slice(1, 7, 2)),
        ({"type": "slice", "value": [None, -1, None]}, slice(None, -1)),
        ({"type": "ellipsis", "value": "..."}, ...),
        ({"type": "torch.dtype", "value": "torch.bfloat16"}, torch.bfloat16),
        ({"type": "torch.dtype", "value": "bool"}, torch.bool),
        ({"type": "torch.memory_format", "format": "torch.channels_last"}, torch.channels_last),
        ({"type": "torch.memory_format", "value": "torch.preserve_format"}, torch.preserve_format),
        ({"type": "torch.device", "value": "npu:0"}, torch.device("cpu")),
    ],
)
def test_values_of_torch(description: dict[str, Any], expected: Any) -> None:
    found = decode_plain_value(description)
    assert type(found) is type(expected)
    assert found == expected


@every("prefix", ["numpy.", ""])
@every(
    "kind, given",
    [
        ("int8", -3),
        ("uint64", 2**63),
        ("float16", 0.5),
        ("float64", 1e300),
        ("bool_", True),
        ("str_", "sum"),
        ("float32", inf),
    ],
)
def test_numpy_scalars(prefix: str, kind: str, given: Any) -> None:
    found = decode_plain_value({"type": prefix + kind, "value": given})
    assert type(found) is getattr(np, kind)
    assert found == given


def test_numpy_arrays(rebuilder: Rebuilder, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    description = {"type": "numpy.ndarray", "dtype": "int16", "shape": [2, 3], "data_name": "a.npy"}
    ((found,), _) = rebuilt(rebuilder, description)
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.tolist()) == (np.int16, [[0, 1, 2], [3, 4, 5]])


def test_nested_lists_and_keywords(rebuilder: Rebuilder) -> None:
    ones = leaf(torch.ones(2))
    positional, keywords = rebuilt(
        rebuilder, [ones, [ones, value(1)], None], dim=value(0), more=[value("a"), ones], by={"x": ones, "y": [value(2)]}
    )  # fmt: skip
    assert torch.equal(positional[0][0], torch.ones(2))
    assert torch.equal(positional[0][1][0], torch.ones(2))
    assert (positional[0][1][1], positional[0][2], keywords["dim"]) == (1, None, 0)
    assert keywords["more"][0] == "a"
    assert torch.equal(keywords["by"]["x"], torch.ones(2))
    assert keywords["by"]["y"] == [2]


def test_arguments_of_the_oldest_dumps(rebuilder: Rebuilder) -> None:
    """They stand under ``input``, not ``input_args``."""
    found = call("Torch.add.0")
    old = type(found)(found.name, 0, {"input": [value(3)]})
    assert rebuilder.rebuild_arguments(old).positional == [3]


def test_gradients_are_asked_of_those_that_needed_them(rebuilder: Rebuilder) -> None:
    ones = leaf(torch.ones(2))
    whole = leaf(torch.ones(2, dtype=torch.int64))
    ((a, b, c), _) = rebuilt(
        rebuilder, {**ones, "requires_grad": True}, ones, {**whole, "requires_grad": True}, api="Torch.add.0"
    )
    assert [t.requires_grad for t in (a, b, c)] == [True, False, False]


def test_what_a_live_recording_gives_back(tmp_path: Path) -> None:
    """Through the recorder and back, an argument of each form."""

    def program() -> None:
        x = torch.arange(24.0).reshape(2, 3, 4)
        x[0, 1:3, ...] = 7.0
        x[None, :, -1] = 8.0
        torch.clamp(x, min=-inf, max=inf)
        torch.bernoulli(torch.rand(3), generator=torch.Generator())
        torch.add(x, np.float32(2.5))
        torch.div(x, 3, rounding_mode="floor")
        torch.sum(x, dim=[0, 1], dtype=torch.float64)
        torch.arange(2**62, 2**62 + 2, dtype=torch.int64, device="cpu")
        torch.clone(torch.ones(1, 2, 3, 4), memory_format=torch.channels_last)
        torch.add(x, True)

    calls = live(tmp_path / "run", program)

    def arguments(name: str) -> tuple[list[Any], dict[str, Any]]:
        found = calls[name].outcome.kept.arguments
        return found.positional, found.keywords

    assert arguments("Tensor.__setitem__.0")[0][1:] == [(0, slice(1, 3, None), ...), 7.0]
    assert arguments("Tensor.__setitem__.1")[0][1:] == [(None, slice(None), -1), 8.0]
    assert arguments("Torch.clamp.0")[1] == {"min": -inf, "max": inf}
    assert arguments("Torch.bernoulli.0")[1] == {"generator": None}
    assert arguments("Torch.add.0")[0][1] == 2.5
    assert arguments("Torch.div.0")[1] == {"rounding_mode": "floor"}
    assert arguments("Torch.sum.0")[1] == {"dim": [0, 1], "dtype": torch.float64}
    assert arguments("Torch.arange.1")[0] == [2**62, 2**62 + 2]
    assert arguments("Torch.clone.0")[1] == {"memory_format": torch.channels_last}
    assert arguments("Torch.add.1")[0][1] is True
    expected = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.equal(arguments("Tensor.__setitem__.0")[0][0], expected), "as it was before the call"


# tensors from files


def stored(directory: Path, tensor_: torch.Tensor, name: str = "a.pt") -> dict[str, Any]:
    """Saved in a file of the run, and described."""
    torch.save(tensor_, directory / name)
    return leaf(
        tensor_.nan_to_num() if tensor_.is_floating_point() and tensor_.itemsize > 1 else tensor_,
        data_name=name,
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool,
     torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, *FLOAT8],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(3, 4), (), (5,)])
def test_recorded_tensors_bit_for_bit(
    rebuilder: Rebuilder, tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    wide = torch.randn(shape) * 3
    recorded = wide.abs().to(dtype) if dtype is torch.uint16 else wide.to(dtype)
    torch.save(recorded, tmp_path / "a.pt")
    description = {"type": "torch.Tensor", "dtype": str(dtype), "shape": list(shape), "data_name": "a.pt"}
    ((found,), _) = rebuilt(rebuilder, description)
    assert (found.dtype, found.shape) == (dtype, recorded.shape)
    assert found.numpy(force=True).tobytes() == recorded.numpy().tobytes() if dtype not in (
        torch.bfloat16, *FLOAT8) else torch.equal(found.float(), recorded.float())  # fmt: skip


def test_nan_inf_and_negative_zero_survive(rebuilder: Rebuilder, tmp_path: Path) -> None:
    recorded = torch.tensor([nan, inf, -inf, -0.0, 1e-45])
    ((found,), _) = rebuilt(rebuilder, stored(tmp_path, recorded))
    assert found.numpy().tobytes() == recorded.numpy().tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files(rebuilder: Rebuilder, tmp_path: Path, order: Any) -> None:
    array = np.array(np.arange(6, dtype=np.float32).reshape(2, 3), order=order)
    np.save(tmp_path / "a.npy", array)
    ((found,), _) = rebuilt(rebuilder, tensor([2, 3], data_name="a.npy"))
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.is_contiguous()


@pytest.mark.parametrize("path", ["/data/dump/step0/a.pt", "C:\\dump\\a.pt", "a.pt"])
def test_files_named_by_the_oldest_recorders(rebuilder: Rebuilder, tmp_path: Path, path: str) -> None:
    """``datapath`` is a path on the machine of the run; the file lies with the others."""
    torch.save(torch.tensor([4.0, 5.0]), tmp_path / "a.pt")
    assert rebuilt(rebuilder, tensor([2], datapath=path))[0][0].tolist() == [4, 5]


def test_each_call_gets_tensors_of_its_own(rebuilder: Rebuilder, tmp_path: Path) -> None:
    """Values that one call writes are not seen by the next."""
    description = stored(tmp_path, torch.zeros(3))
    rebuilt(rebuilder, description)[0][0].fill_(9)
    assert rebuilt(rebuilder, description)[0][0].tolist() == [0, 0, 0]


def test_dtypes_that_the_reference_cannot_take(rebuilder: Rebuilder, tmp_path: Path) -> None:
    """Guide 4.2: int32 targets of cross_entropy become int64, integers of histc float32."""
    target = stored(tmp_path, torch.tensor([0, 1], dtype=torch.int32))
    assert rebuilt(rebuilder, target, api="Functional.cross_entropy.0")[0][0].dtype is torch.int64
    whole = stored(tmp_path, torch.tensor([0, 1]), "b.pt")
    assert rebuilt(rebuilder, whole, api="Torch.histc.0")[0][0].dtype is torch.float32
    assert rebuilt(rebuilder, whole, api="Torch.add.0")[0][0].dtype is torch.int64


# damaged and misfitting data


def damaged(directory: Path, kind: str) -> dict[str, Any]:
    description = stored(directory, torch.arange(6.0))
    path = directory / "a.pt"
    if kind == "missing":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "text":
        path.write_bytes(b"not a tensor")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "directory":
        path.unlink()
        path.mkdir()
    elif kind == "list":
        torch.save([1, 2], path)
    elif kind == "shape":
        torch.save(torch.arange(7.0), path)
    elif kind == "dtype":
        torch.save(torch.arange(6), path)
    return description


@pytest.mark.parametrize("kind", ["missing", "cut", "text", "empty", "directory", "list", "shape", "dtype"])
def test_damaged_files(rebuilder: Rebuilder, tmp_path: Path, kind: str) -> None:
    """One sentence that names the file."""
    with pytest.raises(Unbuildable) as raised:
        rebuilt(rebuilder, damaged(tmp_path, kind))
    text = str(raised.value)
    assert "a.pt" in text
    assert text.endswith(" SKIP.")
    assert "\n" not in text


BAD = [
    ({**tensor([2]), "dtype": "torch.nonsense"}, "no dtype torch.nonsense"),
    ({**tensor([2]), "dtype": "torch.nn"}, "no dtype torch.nn"),
    ({**tensor([2]), "dtype": "torch.finfo"}, "no dtype"),
    (tensor([-1]), "shape must hold non-negative integers"),
    ({**tensor(), "shape": "2"}, "shape must be a list"),
    ({**tensor(), "shape": None}, "shape must be a list"),
    (tensor([2, 2.5]), "shape must hold non-negative integers"),
    (tensor([1 << 40, 1 << 40]), "needs more memory than is available"),
    (tensor([2], data_name=7), "data_name must be"),
    (tensor([2], data_name="../a.pt"), "data_name must be"),
    (tensor([2], layout="torch.sparse_coo"), "layout torch.sparse_coo cannot be rebuilt"),
    ({"type": "torch.memory_format", "format": "torch.nothing"}, "has no torch.nothing"),
    ({"type": "torch.dtype", "value": "torch.nn"}, "has no torch.nn"),
    ({"type": "torch.ProcessGroup", "group_ranks": [0]}, "type torch.ProcessGroup cannot be rebuilt"),
    ({"type": "MyClass"}, "type MyClass cannot be rebuilt"),
    ({"type": "numpy.ndarray", "Max": 1}, "numpy.ndarray cannot be rebuilt"),
]  # fmt: skip
UNCLEAR_BAD = [
    ({"type": "int", "value": "0xzz"}, "int"),
    ({"type": "torch.Size", "value": ["a"]}, "torch.Size"),
    ({"type": "int8", "value": 300}, "int8"),
]


@pytest.mark.parametrize("description, says", [*BAD, *UNCLEAR_BAD])
def test_damaged_descriptions(rebuilder: Rebuilder, description: Any, says: str) -> None:
    with pytest.raises(Unbuildable) as raised:
        rebuilt(rebuilder, description)
    assert says in str(raised.value)
    assert str(raised.value).endswith(" SKIP.")


def test_many_tensors_that_fit_one_by_one(rebuilder: Rebuilder) -> None:
    """The limit, here 1 MiB, is one for the whole call; the next call has all of it."""
    with pytest.raises(Unbuildable, match="needs more memory than is available"):
        rebuilt(rebuilder, *[tensor([1 << 16])] * 5)
    assert len(rebuilt(rebuilder, *[tensor([1 << 16])] * 4)[0]) == 4


def test_nested_without_end(rebuilder: Rebuilder) -> None:
    nested: Any = value(1)
    for _ in range(500):
        nested = [nested]
    with pytest.raises(Unbuildable, match="nested too deeply"):
        rebuilt(rebuilder, nested)


@pytest.mark.parametrize(
    "fields",
    [{"input_args": {}, "input_kwargs": {}}, {"input_args": None}, {"input_args": [], "input_kwargs": [1]}],
)
def test_arguments_that_are_no_lists(rebuilder: Rebuilder, fields: dict[str, Any]) -> None:
    found = call("Torch.add.0")
    with pytest.raises(Unbuildable, match="not recorded as lists and objects"):
        rebuilder.rebuild_arguments(type(found)(found.name, 0, fields))


def test_a_dtype_that_torch_has_and_numpy_lacks() -> None:
    with pytest.raises(Unbuildable, match="no dtype"):
        convert_to_tensor(np.array(["text"]))
