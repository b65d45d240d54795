"""Files as ``torch.save`` lays them out, made by hand: the instructions, the storages, the zip."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

V2 = b"ctorch._utils\n_rebuild_tensor_v2\n"
PARAMETER = b"ctorch._utils\n_rebuild_parameter\n"
HOOKS = b"ccollections\nOrderedDict\n)R"
ONES = np.ones(6, "<f4").tobytes()


def data(value: Any) -> bytes:
    """The instructions that push plain data."""
    return pickle.dumps(value, 2)[2:-1]


def storage(kind: bytes = b"ctorch\nFloatStorage\n", key: Any = "0", tag: Any = "storage") -> bytes:
    return b"(" + data(tag) + kind + data(key) + data("cpu") + data(6) + b"tQ"


def tensor(offset: Any = 0, shape: Any = (2, 3), strides: Any = (3, 1), place: bytes = b"", rest: bytes = b"") -> bytes:
    """The instructions that describe a tensor, without the first and the last."""
    return V2 + b"(" + (place or storage()) + data(offset) + data(shape) + data(strides) + b"\x89" + HOOKS \
        + rest + b"tR"  # fmt: skip


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def archive(
    path: Path,
    described: bytes,
    storages: Mapping[str, bytes] | None = None,
    byteorder: bytes = b"little",
    compression: int = zipfile.ZIP_STORED,
    compress_only: str = "",
) -> Path:
    """A file as torch.save lays it out."""
    members = {"data.pkl": described, "byteorder": byteorder, "version": b"3\n"}
    members |= {f"data/{key}": content for key, content in (storages or {"0": ONES}).items()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            how = compression if name.startswith(compress_only) else zipfile.ZIP_STORED
            file.writestr(f"x/{name}", content, how)
    return path
