"""ACL dumps: those of ``tests/data/acl.tar.xz``, and a writer of others that shares nothing with the reader."""

from __future__ import annotations

import itertools
import struct
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import DATA

Array = np.ndarray[Any, Any]
NAME = "Add.Add.45.0.1675157077183551"
"""A file name as the device gives it."""
NUMBER_OF_SIZE = {"input": 5, "output": 6}
MESSAGE = {"output": 3, "input": 4, "buffer": 5, "space": 8}


@pytest.fixture(scope="session")
def acl_dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the dumps and what their reader should make of them."""
    root = tmp_path_factory.mktemp("acl")
    with tarfile.open(DATA / "acl.tar.xz") as file:
        file.extractall(root, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return root / "acl_synthetic"


def varint(number: int) -> bytes:
    """Return an integer in the wire format; a negative one as the ten bytes that protobuf gives it."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def entry(number: int, value: int | bytes) -> bytes:
    """Return a field."""
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    return varint(number * 8 + 2) + varint(len(value)) + value


def shape_message(sizes: Iterable[int]) -> bytes:
    """Return the message of a shape."""
    return entry(1, b"".join(map(varint, sizes)))


def tensor(
    side: str,
    data: bytes,
    data_type: int = 1,
    layout: int = 2,
    shape: Sequence[int] = (),
    host: Sequence[int] | None = None,
    host_layout: int | None = None,
    size: int | None = None,
    groups: int = 0,
) -> tuple[str, bytes, bytes]:
    """Return the side, the message and the bytes of an input or output."""
    number = NUMBER_OF_SIZE[side]
    message = entry(1, data_type) + entry(2, layout) + entry(3, shape_message(shape))
    if host_layout is not None:
        message += entry(4, entry(1, b"op") + entry(3, data_type) + entry(4, host_layout))
    message += entry(number, len(data) if size is None else size)
    if host is not None:
        message += entry(number + 1, shape_message(host))
    return side, message + (entry(number + 2, groups) if groups else b""), data


def raw(side: str, message: bytes, data: bytes = b"") -> tuple[str, bytes, bytes]:
    """Return a section with a message that is given as bytes."""
    return side, message, data


def dump(*sections: tuple[str, bytes, bytes], name: bytes = b"Add", more: bytes = b"") -> bytes:
    """Return a file: the length of the header, the header, and the bytes of all sections."""
    header = entry(1, b"2.0") + entry(2, 1675157077183551)
    for side in ("output", "input", "buffer"):
        header += b"".join(entry(MESSAGE[side], message) for own, message, _ in sections if own == side)
    header += entry(6, name) + entry(7, entry(1, b"a") + entry(2, b"b"))
    header += b"".join(entry(MESSAGE["space"], message) for own, message, _ in sections if own == "space") + more
    order = ("input", "output", "buffer", "space")
    data = b"".join(data for wanted in order for own, _, data in sections if own == wanted)
    return struct.pack("<Q", len(header)) + header + data


def write(path: Path, content: bytes) -> Path:
    """Write a file with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def five_dimensions(values: Array, block: int) -> Array:
    """Return N C H W as N C1 H W C0, element by element, with zeros in the padding."""
    n, c, h, w = values.shape
    found = np.zeros((n, -(-c // block), h, w, block), values.dtype)
    for at in itertools.product(*map(range, values.shape)):
        found[at[0], at[1] // block, at[2], at[3], at[1] % block] = values[at]
    return found


def six_dimensions(values: Array, block: int) -> Array:
    """Return N C D H W as N D C1 H W C0, element by element."""
    n, c, d, h, w = values.shape
    found = np.zeros((n, d, -(-c // block), h, w, block), values.dtype)
    for at in itertools.product(*map(range, values.shape)):
        found[at[0], at[2], at[1] // block, at[3], at[4], at[1] % block] = values[at]
    return found


def tiles(values: Array, high: int, wide: int) -> Array:
    """Return matrices … H W as … W1 H1 H0 W0, element by element."""
    *lead, h, w = values.shape
    found = np.zeros((*lead, -(-w // wide), -(-h // high), high, wide), values.dtype)
    for *at, i, j in itertools.product(*map(range, values.shape)):
        found[(*at, j // wide, i // high, i % high, j % wide)] = values[(*at, i, j)]
    return found


def weights(values: Array, tile: int, block: int) -> Array:
    """Return N C H W as (C1 H W) N1 Ni C0, element by element."""
    n, c, h, w = values.shape
    found = np.zeros((-(-c // block) * h * w, -(-n // tile), tile, block), values.dtype)
    for i, j, y, x in itertools.product(*map(range, values.shape)):
        found[(j // block * h + y) * w + x, i // tile, i % tile, j % block] = values[i, j, y, x]
    return found


def old_report(unit: int = 2, task: int = 45, stream: int = 514, model: int = 1, status: int = 32) -> bytes:
    """Return a report of overflows of the old style; the units are DHA, L2 and AI Core."""
    data = bytearray(2048)
    struct.pack_into("<6Q", data, (0, 128, 256)[unit], model, stream, task, 0, 0x1234500, 0xABC00)
    if unit == 2:
        struct.pack_into("<3Q", data, 1024, 0x1234500, 7, status)
    else:
        struct.pack_into("<Q", data, (512, 768)[unit], status)
    return bytes(data)


def new_report(kind: int, fields: Sequence[int], version: int = 0, valid: int = 1) -> bytes:
    """Return a report of overflows of the new style."""
    return struct.pack(f"<6I{len(fields)}Q", 0x5A5A5A5A, version, valid, kind, 0, 8 * len(fields), *fields)
