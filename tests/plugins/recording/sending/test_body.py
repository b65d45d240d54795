"""Bodies of sent calls: tensors of every dtype and form come back, damaged bodies are refused."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_recording.reading.entries import SIZES
from probe_recording.sending.body import SentTensor, SentTensors, encode_body
from support.cases import every
from support.measuring import PROPERTY

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Value

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def value(name: str) -> Value:
    return Value(Kind.TENSOR, "torch.float32", "[2, 3]", (2, 3), data_name=f"{name}.pt")


def sent(name: str, array: np.ndarray[Any, Any], data: Any = None) -> SentTensor:
    data = np.ascontiguousarray(array).tobytes() if data is None else data
    return SentTensor(name, array.dtype.name, array.shape, data)


def body(*tensors: SentTensor) -> bytes:
    return b"".join(bytes(part) for part in encode_body(tensors))


def same(array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert array.dtype == expected.dtype and array.shape == expected.shape
    assert array.tobytes() == expected.tobytes()


@every("dtype", SIZES)
@every("shape", [(), (0,), (3, 0), (2, 4), (1, 2, 1, 4)])
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    real = np.dtype(getattr(ml_dtypes, dtype, dtype))
    count = int(np.prod(shape)) * real.itemsize
    array = np.arange(count, dtype=np.uint8).astype(bool if dtype == "bool" else np.uint8).view(real)
    array = array.reshape(shape)
    tensors = SentTensors(body(sent("other", X), sent("x", array), sent("byte", np.array([1], np.uint8))))
    same(tensors(value("x")), array)
    same(tensors(value("other")), X)


def test_strided_arrays_are_sent_in_row_major_order() -> None:
    same(SentTensors(body(sent("x", X.T)))(value("x")), np.ascontiguousarray(X.T))


def test_tensors_that_share_their_bytes_are_sent_once() -> None:
    data = X.tobytes()
    parts = encode_body([sent("a", X, data), sent("b", X, data), sent("c", X.reshape(6), data)])
    assert len(parts) == 3  # the header, one for a and b, one for another shape
    tensors = SentTensors(b"".join(parts))
    same(tensors(value("b")), X)
    same(tensors(value("c")), X.reshape(6))
    assert sorted(tensors.names) == ["a", "b", "c"]


def test_every_tensor_lies_at_a_multiple_of_its_element_size() -> None:
    order = ["uint8", "float64", "bool", "bfloat16", "int32", "complex128"]
    arrays = [np.zeros(3, getattr(ml_dtypes, dtype, dtype)) for dtype in order]
    tensors = SentTensors(body(*[sent(str(i), array) for i, array in enumerate(arrays)]))
    assert all(tensors(value(str(i))).ctypes.data % arrays[i].itemsize == 0 for i in range(len(order)))


def test_arrays_are_read_only_views() -> None:
    array = SentTensors(body(sent("x", X)))(value("x"))
    assert not array.flags.writeable and not array.flags.owndata


def test_a_call_without_tensors() -> None:
    assert SentTensors(b"").names == SentTensors(body()).names == []
    with pytest.raises(UnreadableTensor, match="holds no x"):
        SentTensors(b"")(value("x"))


def test_a_safetensors_reader_understands_it() -> None:
    content = body(sent("x", X), sent("y", X.astype(ml_dtypes.bfloat16)))
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert header["x"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    assert header["y"] == {"dtype": "BF16", "shape": [2, 3], "data_offsets": [24, 36]}
    assert len(content) == 8 + length + 36 and length % 8 == 0


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([sent("x", X), sent("x", X)], "two tensors of a call are called x"),
        ([SentTensor("x", "float32", (2, 2), b"1234")], "do not fit float32"),
        ([SentTensor("x", "quint8", (2,), b"12")], "do not fit quint8"),
    ],
)
def test_what_cannot_be_sent(tensors: list[SentTensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_body(tensors)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1234", "cut off within its header"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "cut off within its header"),
        ((17 << 20).to_bytes(8, "little") + bytes(17 << 20), "claims a header of 17,825,792 bytes"),
        ((2).to_bytes(8, "little") + b"[]", "is not a JSON object"),
        ((4).to_bytes(8, "little") + b"\x80\x04\x95\x2e", "not valid JSON"),
        ((3 << 18).to_bytes(8, "little") + b"[]," * (1 << 18), "has 524,289 values"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_damaged_headers(content: bytes, message: str) -> None:
    with pytest.raises(UnreadableTensor, match=message):
        SentTensors(content)


def test_an_error_in_one_tensor_leaves_the_others() -> None:
    fields = {"dtype": "F32", "shape": [2], "data_offsets": [0, 800]}
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    text = json.dumps({"bad": fields, "good": good}).encode()
    tensors = SentTensors(len(text).to_bytes(8, "little") + text + bytes(8))
    same(tensors(value("good")), np.zeros(2, np.float32))
    with pytest.raises(UnreadableTensor, match="bad reaches beyond the end"):
        tensors(value("bad"))


@given(st.binary(max_size=60), st.integers(0, 70))
@PROPERTY
def test_rubbish_raises_nothing_else(data: bytes, length: int) -> None:
    for content in (data, length.to_bytes(8, "little") + data):
        try:
            SentTensors(content)
        except UnreadableTensor:
            continue
