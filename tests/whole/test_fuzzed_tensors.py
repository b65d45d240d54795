"""Tensor files with damaged bytes: each is read as an array, or raises UnreadableTensor, which costs one row."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_pytorch.ptfile import load_pt
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.memory import SMALL_FILE
from probe_recording.reading.npy import load_npy
from probe_recording.reading.packed import PackedTensors
from support.measuring import EasyGuard, mapping

from probe_core.errors import UnreadableTensor

SHORT, LONG = 150, 3300
"""Files of each kind: 900 in the default suite, some 20,000 in the slow one."""
Build = Callable[[], bytes]
Read = Callable[[Path], None]

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


@pytest.fixture(autouse=True, scope="module", params=[EasyGuard(), None], ids=["mapped", "read"])
def in_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to read large files: mapped into memory, or whole where mappings are not guarded."""
    with mapping(request.param):
        yield


def damaged(data: bytes, random_: random.Random) -> bytes:
    """Return the bytes with a few of them changed, cut off, cut out, repeated or overwritten by a number."""
    content = bytearray(data)
    for _ in range(random_.randint(1, 5)):
        # most of the damage is near the ends of the file, where formats describe the data
        near = random_.choice((len(content), 300, 1000))
        at = random_.randrange(min(near, len(content)) + 1)
        at = at if random_.random() < 0.5 else len(content) - at
        how = random_.randrange(6)
        if how == 0 and content:
            content[min(at, len(content) - 1)] ^= 1 << random_.randrange(8)
        elif how == 1:
            del content[at:]
        elif how == 2:
            del content[at : at + random_.choice((1, 4, 50))]
        elif how == 3:
            content[at:at] = content[random_.randrange(len(content) + 1) :][: random_.choice((1, 8, 64))]
        elif how == 4:
            width = random_.choice("BHIQ")
            packed = struct.pack("<Q", random_.choice(NUMBERS))[: struct.calcsize(width)]
            content[at : at + len(packed)] = packed
        else:
            content[at : at + 4] = random_.randbytes(4)
    return bytes(content)


def torch_zip() -> bytes:
    return _saved()


def torch_zip_mapped() -> bytes:
    """A file so large that it is mapped."""
    data = _saved(SMALL_FILE // 4 + 100)
    assert len(data) > SMALL_FILE
    return data


def torch_legacy() -> bytes:
    return _saved(_use_new_zipfile_serialization=False)


def _saved(count: int = 6, **how: Any) -> bytes:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(torch.arange(count, dtype=torch.float32).reshape(2, -1).T, file, **how)
    return file.getvalue()


def numpy_file() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(6, dtype=np.float16).reshape(2, 3))
    return file.getvalue()


def packed_file() -> bytes:
    header = {
        "__metadata__": {
            "alias": json.dumps({"c": "a", "d": "gone"}),
            "dtype": json.dumps({"b": "bfloat16"}),
            "shape": json.dumps({"b": [2, 1]}),
        },
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "U8", "shape": [4], "data_offsets": [24, 28]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + np.arange(7, dtype=np.float32).tobytes()


def journal() -> bytes:
    header = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    return json.dumps({"data_start": 64, "header": header}).encode()


def read_whole(array: np.ndarray[Any, Any]) -> None:
    """Read every byte of an array, whose size must be plausible."""
    assert array.size < 1 << 27
    array.tobytes()


def read_pt(path: Path) -> None:
    read_whole(load_pt(path))


def read_npy(path: Path) -> None:
    read_whole(load_npy(path))


def read_packed(path: Path) -> None:
    path.rename(path.with_name(PACKED_FILE))
    _all_packed(path.parent)


def read_journal(path: Path) -> None:
    path.rename(path.with_name(JOURNAL_FILE))
    path.with_name(PACKED_FILE).write_bytes(bytes(64) + np.arange(6, dtype=np.float32).tobytes())
    _all_packed(path.parent)


def _all_packed(directory: Path) -> None:
    tensors = PackedTensors.find(directory)
    assert tensors is not None
    refused: UnreadableTensor | None = None
    for name in "abcd":
        try:
            read_whole(tensors.load(name))
        except UnreadableTensor as error:
            refused = error
    if refused is not None:
        raise refused


KINDS: dict[str, tuple[Build, Read]] = {
    "pt": (torch_zip, read_pt),
    "mapped pt": (torch_zip_mapped, read_pt),
    "legacy pt": (torch_legacy, read_pt),
    "npy": (numpy_file, read_npy),
    "packed": (packed_file, read_packed),
    "journal": (journal, read_journal),
}


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_to_a_file_is_a_defect(tmp_path: Path, kind: str, count: int) -> None:
    build, read = KINDS[kind]
    whole = build()
    random_ = random.Random(kind)
    refused = 0
    for number in range(count):
        data = damaged(whole, random_)
        path = tmp_path / "x"
        path.write_bytes(data)
        try:
            read(path)
        except UnreadableTensor as error:
            refused += 1
            assert str(error).isprintable() and len(str(error)) < 500, f"{number}: {error}"
        except Exception as error:
            pytest.fail(f"{kind} {number}: {error!r}\n{data[:600]!r}")
    assert refused > count // 10
