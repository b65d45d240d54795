"""The words in which two frameworks are compared: names, places of arguments, owners of gradients, dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from probe_matching.gradients import find_owners
from probe_matching.name_table import Dialect, Overload, Positions
from probe_matching.translated import TranslatedRun
from probe_mindspore.names import load_table
from probe_mindspore.reader import MindSporeReader
from probe_recording.reading.run import DumpRun
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run
from support.runs.records import record_of

from probe_core.model import Record, Slot
from probe_core.model.dtypes import get_dtype_kind, is_foreign_spelling, is_same_dtype, normalize_dtype

COMMON = Dialect(
    apis={"Tensor.mean": "Torch.mean", "Tensor.view": "Torch.view"},
    arguments={"Torch.mean": ["input", "dim", "keepdim"], "Torch.max": ["input", "dim|other", "keepdim"],
               "Torch.view": ["input", "size*"]},
)  # fmt: skip
OWN = Dialect(
    apis={"Mint.mean": "Torch.mean", "Functional.mean": "Torch.mean", "Mint.view": "Torch.view"},
    arguments={"Functional.mean": ["input|x", "dim|axis", "keepdim|keep_dims", "extra"]},
)


@pytest.mark.parametrize(
    ("api", "path", "place"),
    [
        ("Mint.mean", "dim", "1"), ("Mint.mean", "2", "2"), ("Mint.mean", "dtype", "dtype"),
        ("Functional.mean", "axis", "1"), ("Functional.mean", "keep_dims", "2"), ("Functional.mean", "x", "0"),
        ("Functional.mean", "axis.1", "1.1"), ("Functional.mean", "3", "extra"),
        ("Mint.view", "1", "1.0"), ("Mint.view", "2", "1.1"), ("Mint.view", "size.0", "1.0"), ("Mint.view", "1.1", "1.1"),
        ("Mint.unknown", "1", "1"), ("Mint.unknown", "dim", "dim"),
    ],
)  # fmt: skip
def test_arguments_have_one_place_however_they_are_written(api: str, path: str, place: str) -> None:
    assert Positions(OWN, COMMON).find_place(api, path, is_scalar=True) == place


def test_words_of_several_overloads_are_one_place() -> None:
    positions = Positions(COMMON, COMMON)
    assert [positions.find_place("Torch.max", path, is_scalar=True) for path in ("dim", "other", "1")] == ["1"] * 3


# -- gradients -----------------------------------------------------------------------------------------------


def pair(inputs: list[Any], outputs: list[Any], untracked: tuple[int, ...] = ()) -> tuple[Record, Record]:
    """A backward and a forward call; shapes of tensors, None for null, numbers for scalars."""
    taken = [
        scalar(item) if isinstance(item, int) else tensor(item, requires_grad=number not in untracked)
        for number, item in enumerate(inputs)
    ]
    made = [None if item is None else tensor(item) for item in outputs]
    return (
        record_of(1, "Mint.f.0.backward", {"input": [tensor([1])], "output": made}),
        record_of(0, "Mint.f.0.forward", forward(*taken, output=[tensor([1])])),
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ([[2, 3], [4, 3], [4]], [[2, 3], [4, 3], [4]], ["0", "1", "2"]),  # in order
        ([[2, 3], [2, 3]], [None, [2, 3]], ["0", "1"]),  # null where there is none
        ([[2, 3], 5], [[2, 3], None], ["0", None]),  # null for a scalar
        ([[2, 3], [5, 3], [5]], [[5], [2, 3], [3, 5]], ["2", "0", None]),  # another order, one transposed
        ([[2, 8], [8, 8], [8]], [[8], [2, 8], [8, 8]], ["2", "0", None]),  # which may be transposed
        ([[2, 3], [2, 3], [4]], [[2, 3]], [None]),  # of which of both?
        ([[2, 3], [5]], [[7, 7]], [None]),  # of neither
    ],
)
def test_the_owner_of_each_gradient(inputs: list[Any], outputs: list[Any], expected: list[Any]) -> None:
    assert find_owners(*pair(inputs, outputs)) == expected


def test_inputs_that_need_no_gradient_own_none() -> None:
    assert find_owners(*pair([[8], [8], [2, 8]], [[8], [2, 8]], untracked=(0,))) == ["1", "2"]


# -- the view of a run ---------------------------------------------------------------------------------------


def view(directory: Path, data: dict[str, Any], own: Dialect, rename: Any = None, **head: Any) -> TranslatedRun:
    path = write_run(directory, data, **head)
    return TranslatedRun(DumpRun(path, "mindspore", lambda name: np.zeros(0)), own, COMMON, rename, "target")


def test_calls_are_numbered_through_all_spellings(tmp_path: Path) -> None:
    call = forward(tensor(), output=[tensor()])
    back = {"input": [tensor()], "output": [tensor()]}
    names = ("Mint.mean.0.forward", "Functional.mean.0.forward", "Mint.mean.1.forward",
             "Mint.mean.1.backward", "Functional.mean.0.backward", "Mint.mean.7.backward")  # fmt: skip
    run = view(tmp_path, {name: back if "backward" in name else call for name in names}, OWN)
    assert run.names() == [
        "Torch.mean.0.forward", "Torch.mean.1.forward", "Torch.mean.2.forward",
        "Torch.mean.2.backward", "Torch.mean.1.backward", "Torch.mean.3.backward",
    ]  # fmt: skip
    assert run.find("Torch.mean.2.backward") == 3
    assert run.shown.names()[1] == "Functional.mean.0.forward"


def test_calls_of_two_primitives_of_one_class_stay_two(tmp_path: Path) -> None:
    data = {f"Primitive.{name}.Shape.0.forward": forward(tensor(), output=[]) for name in ("shape", "shape_op")}
    assert view(tmp_path, data, OWN).names() == list(data)
    named = Dialect(apis={"Primitive.Shape": "Torch.shape"})
    assert view(tmp_path / "named", data, named).names() == ["Torch.shape.0.forward", "Torch.shape.1.forward"]


def test_values_keep_their_numbers(tmp_path: Path) -> None:
    run = view(tmp_path, {"Mint.mean.0.forward": forward(tensor(), scalar(1), output=[tensor()])}, OWN)
    assert [slot.path for slot in run.record(0).slots] == ["0", "1", "0"]
    assert list(run.starts) == list(run.shown.starts)


def test_inner_gradients_of_composites_are_left_alone(tmp_path: Path) -> None:
    """Other recorders note what the last node of a call gave; probe's own looks at all of them."""
    torch = Dialect(composites={"Functional.linear": 3, "Functional.loss": 0})
    data: dict[str, Any] = {
        "Functional.linear.0.forward": forward(tensor([2, 3, 4]), tensor([5, 4]), output=[tensor([2, 3, 5])]),
        "Functional.linear.1.forward": forward(tensor([3, 4]), tensor([5, 4]), output=[tensor([3, 5])]),
        "Functional.loss.0.forward": forward(tensor([2, 5]), output=[tensor([])]),
        "Torch.exp.0.forward": forward(tensor([2, 5]), output=[tensor([2, 5])]),
        "Functional.loss.0.backward": {"input": [tensor([])], "output": [tensor([2, 5])]},
        "Torch.exp.0.backward": {"input": [tensor([2, 5])], "output": [tensor([2, 5])]},
        "Functional.linear.0.backward": {"input": [tensor([2, 3, 5])], "output": [tensor([2, 3, 4])]},
        "Functional.linear.1.backward": {"input": [tensor([3, 5])], "output": [tensor([3, 4])]},
    }
    for record in data.values():
        for item in record.get("input_args", ()):
            item["requires_grad"] = True
    recorded = view(tmp_path / "msprobe", data, torch)
    assert recorded.inner == 2
    assert outputs(recorded, "Functional.loss.0.backward") == ["~target.0"]
    assert outputs(recorded, "Functional.linear.0.backward") == ["~target.0"]
    assert outputs(recorded, "Functional.linear.1.backward") == outputs(recorded, "Torch.exp.0.backward") == ["0"]
    ours = view(tmp_path / "ours", data, torch, probe={})
    assert ours.inner == 0
    assert outputs(ours, "Functional.loss.0.backward") == outputs(ours, "Functional.linear.0.backward") == ["0"]


def test_a_call_with_more_values_is_another_api(tmp_path: Path) -> None:
    """``x.transpose(0, 2, 1)`` is numpy's and PyTorch's permute, ``x.transpose(1, 2)`` is PyTorch's transpose."""
    own = Dialect(
        apis={"Tensor.transpose": "Torch.transpose", "Tensor.permute": "Torch.permute"},
        overloads={"Tensor.transpose": Overload(2, "Tensor.permute")},
    )
    call, back = {"output": [tensor()]}, {"input": [tensor()], "output": [tensor()]}
    data: dict[str, Any] = {
        "Tensor.transpose.0.forward": forward(tensor(), scalar(1), scalar(2)) | call,
        "Tensor.transpose.1.forward": forward(tensor(), scalar(0), scalar(2), scalar(1)) | call,
        "Tensor.transpose.2.forward": forward(tensor(), [scalar(0), scalar(2), scalar(1)]) | call,
        "Tensor.permute.0.forward": forward(tensor(), scalar(0), scalar(2), scalar(1)) | call,
        "Tensor.transpose.2.backward": back,
        "Tensor.transpose.0.backward": back,
    }
    assert view(tmp_path, data, own).names() == [
        "Torch.transpose.0.forward", "Torch.permute.0.forward", "Torch.permute.1.forward",
        "Torch.permute.2.forward", "Torch.permute.1.backward", "Torch.transpose.0.backward",
    ]  # fmt: skip
    assert load_table().source.overloads == own.overloads


def outputs(run: DumpRun, key: str) -> list[str]:
    index = run.find(key)
    assert index is not None
    slots: tuple[Slot, ...] = run.record(index).slots
    return [slot.path for slot in slots if slot.side.value == "output"]


def test_the_built_in_table_knows_the_usual_pairs() -> None:
    names = load_table()
    pairs = {
        "Mint.add": "Torch.add", "Tensor.__add__": "Torch.add", "Functional.add": "Torch.add",
        "MintFunctional.relu": "Torch.relu", "Functional.dense": "Functional.linear",
        "MintFunctional.cross_entropy": "Functional.cross_entropy", "Primitive.MatMul": "Torch.matmul",
    }  # fmt: skip
    assert {own: names.source.word(own) for own in pairs} == pairs
    assert names.source.word("Primitive.mine.MatMul") == "Torch.matmul"
    assert names.target.word("Tensor.__add__") == names.target.word("Torch.add") == "Torch.add"
    assert names.target.word("Functional.relu") == "Torch.relu"
    assert names.source.word("Functional.gather") == "Functional.gather"  # the name alone is the same


# -- paths and dtypes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "common", "sort"),
    [
        ("Float32", "float32", "float"), ("torch.float32", "float32", "float"), ("BFloat16", "bfloat16", "float"),
        ("torch.int64", "int64", "int"), ("UInt8", "uint8", "int"), ("Bool", "bool", "bool"),
        ("Complex64", "complex64", "complex"), ("torch.float8_e4m3fn", "float8_e4m3fn", "float"),
        ("<class 'float'>", "<class 'float'>", "<class 'float'>"), ("torch.Size", "torch.Size", "torch.Size"),
    ],
)  # fmt: skip
def test_dtypes_in_common_words(dtype: str, common: str, sort: str) -> None:
    assert normalize_dtype(dtype) == common and get_dtype_kind(dtype) == sort


def test_dtypes_of_two_frameworks() -> None:
    assert is_same_dtype("Float32", "torch.float32") and not is_same_dtype("Float16", "torch.float32")
    assert is_foreign_spelling("Float32", "torch.float32") and not is_foreign_spelling("Float32", "Float16")


@pytest.mark.parametrize("stored", ["float32", "bits", "void"])
def test_bfloat16_is_read_as_such_however_it_is_stored(stored: str, tmp_path: Path) -> None:
    exact = np.array([1.5, -2.0, 3.140625], ml_dtypes.bfloat16)
    array = {"float32": exact.astype(np.float32), "bits": exact.view(np.uint16), "void": exact.view("V2")}[stored]
    path = write_tensor_run(tmp_path, {"Mint.abs.0.forward": ([array], [])})
    path.write_text(path.read_text().replace("torch.float32", "BFloat16"))
    run = MindSporeReader().open(path)
    found = run.tensor(run.record(0).slots[0].value)
    assert found.dtype == ml_dtypes.bfloat16 and np.array_equal(found, exact)
