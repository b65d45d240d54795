"""Packed tensor files, whole and damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.packed import PackedTensors

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Value
from support.measuring import EasyGuard, mapping

NATIVE = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64,
    "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16,
    "U8": np.uint8, "BOOL": np.bool_, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "C64": np.complex64, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
CODES = {np.dtype(dtype): code for code, dtype in NATIVE.items()}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True, scope="module", params=[EasyGuard(), None], ids=["mapped", "read"])
def in_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files are mapped, and read where nobody guards a mapping."""
    with mapping(request.param):
        yield


def header_of(tensors: dict[str, np.ndarray], **metadata: Any) -> tuple[dict[str, Any], bytes]:
    """The header and the data of a packed file; tensors that are no array with a code are stored as bytes."""
    header: dict[str, Any] = {}
    data = b""
    extra: dict[str, dict[str, Any]] = {"dtype": {}, "shape": {}}
    for name, array in tensors.items():
        code = CODES.get(array.dtype)
        begin, data = len(data), data + array.tobytes()
        if code is None:
            extra["dtype"][name], extra["shape"][name] = array.dtype.name, list(array.shape)
        header[name] = {
            "dtype": code or "U8",
            "shape": list(array.shape) if code else [array.nbytes],
            "data_offsets": [begin, len(data)],
        }
    texts = {key: json.dumps(value) for key, value in {**extra, **metadata}.items() if value}
    return {"__metadata__": texts, **header} if texts else header, data


def write(directory: Path, header: Any, data: bytes = b"", pad: int = 8) -> PackedTensors:
    """A packed file with ``header``, an object or its text."""
    directory.mkdir(parents=True, exist_ok=True)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    (directory / PACKED_FILE).write_bytes(len(text).to_bytes(8, "little") + text + data)
    return PackedTensors(directory)


def write_packed(directory: Path, tensors: dict[str, np.ndarray], **metadata: Any) -> PackedTensors:
    return write(directory, *header_of(tensors, **metadata))


def same(found: np.ndarray, array: np.ndarray) -> None:
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def refuses(store: PackedTensors, match: str, name: str = "x") -> None:
    """Loading ends in the one exception that costs a row, on one line that names what is damaged."""
    with pytest.raises(UnreadableTensor, match=match) as caught:
        store.load(name)
    message = str(caught.value)
    assert not caught.value.missing
    assert "\n" not in message and len(message) < 300 and message.startswith(("tensors.", "the header", '"'))


# -- the journal -----------------------------------------------------------------------------------


def journal(directory: Path, header: Any, start: Any) -> None:
    (directory / JOURNAL_FILE).write_text(json.dumps({"data_start": start, "header": header}))


# -- damaged headers -------------------------------------------------------------------------------


def entry(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# -- in a run --------------------------------------------------------------------------------------


def value(data_name: str) -> Value:
    return Value(Kind.TENSOR, "torch.float32", "[2, 3]", (2, 3), data_name=data_name)
