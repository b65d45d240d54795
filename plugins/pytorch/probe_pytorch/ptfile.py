"""Reading of a tensor from a ``.pt`` file without torch and without unpickling.

A ``.pt`` file (PyTorch >= 1.6) is an uncompressed zip: ``{root}/data.pkl`` describes the tensor,
``{root}/data/{key}`` holds the bytes of each storage. The description is a pickle; this module interprets
the few instructions that describe a tensor, and builds plain data from them. Nothing in the file is
imported, called or run: an unknown name ends the reading.

Format: torch/serialization.py and torch/_utils.py (``_rebuild_tensor_v2``,
``_rebuild_tensor_v3``, ``_rebuild_parameter``), and the instructions of Python's pickletools.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from probe_recording.reading.memory import SMALL_FILE, Memory, check_unchanged, open_memory
from probe_recording.reading.pickle_data import PickledCall, PickledName, PickleError, PickleMachine

from probe_core import engine
from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import MappedFile
from probe_pytorch.zipmembers import read_members


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that a pickle refers to: its class and its key in the file."""

    kind: PickledName
    key: str


_ALLOWED_MODULES = frozenset({"torch", "torch._utils", "torch.storage", "collections"})
_ALLOWED_CALLS = frozenset({"_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter", "OrderedDict"})


def interpret(program: bytes) -> Any:
    """Return the data that a pickle describes.

    Raises:
        PickleError: The pickle is cut off, or has an instruction or a name that no tensor needs.
    """
    return _TensorMachine(program).run()


class _TensorMachine(PickleMachine):
    """A machine for the few names and calls that describe a tensor."""

    def resolve(self, module: str, name: str) -> Any:
        if module not in _ALLOWED_MODULES:
            raise PickleError(f"it asks for {module}.{name}, which no tensor needs; it was not run")
        return PickledName(module, name)

    def call(self, function: PickledName, arguments: tuple[Any, ...]) -> Any:
        if function.name not in _ALLOWED_CALLS:
            raise PickleError(f"tensors made by {function.name!r:.80} are not supported")
        return {} if function.name == "OrderedDict" else PickledCall(function, arguments)

    def refer(self, reference: Any) -> Any:
        tag, kind, key = reference[:3]
        if tag != "storage" or not isinstance(kind, PickledName) or not isinstance(key, str):
            raise PickleError("its storage is not described as torch.save does")
        return Storage(kind, key)


USUAL_PICKLE_BYTES = 4096
MAX_PICKLE_BYTES = 4 << 20
LITTLE_ENDIAN = sys.byteorder == "little"
_LOCAL_HEADER = struct.Struct("<4s22x2H")
"""The header before each member: its mark, and the lengths of its name and of its extra fields."""
MAX_EXPANDED_ELEMENTS = 1 << 26
"""Largest number of elements that an expanded tensor (stride 0) may have beyond those in its storage."""

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "float64": np.float64, "float32": np.float32, "float16": np.float16,
        "bfloat16": ml_dtypes.bfloat16, "complex128": np.complex128, "complex64": np.complex64,
        "int64": np.int64, "int32": np.int32, "int16": np.int16, "int8": np.int8,
        "uint64": np.uint64, "uint32": np.uint32, "uint16": np.uint16, "uint8": np.uint8,
        "bool": np.bool_, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
        "float8_e5m2": ml_dtypes.float8_e5m2, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    }.items()
}  # fmt: skip

_STORAGE_DTYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "UntypedStorage": "uint8",
}  # fmt: skip


@cache
def _load_compiled_reader() -> ModuleType | None:
    """Return the compiled reader of small files, if it is to be used."""
    return engine.import_compiled("probe_pytorch._ptfile")


def load_pt(path: str | os.PathLike[str]) -> np.ndarray[Any, Any]:
    """Return the tensor in ``path``, if possible as a read-only view of the mapped file.

    bfloat16 and float8 are returned in the dtypes of ml_dtypes.

    Raises:
        UnreadableTensor: The file is no ``.pt`` file, is cut off, or does not hold a plain tensor.
        OSError: The file cannot be opened.
    """
    memory: Memory = b""
    try:
        compiled = _load_compiled_reader()
        small = None if compiled is None else compiled.read_small(path, SMALL_FILE)
        if small is not None:
            memory, program, key, start, size = small
            outline = _read_usual_outline(program)
            if outline.key == key:
                return _create_array(outline, memory, start, size, LITTLE_ENDIAN)
        memory = open_memory(path)
        archive = _Archive(memory)
        outline = _read_outline(archive.pickle())
        is_native = archive.is_little_endian() == LITTLE_ENDIAN
        return _create_array(outline, memory, *archive.locate_storage(outline.key), is_native)
    except UnreadableTensor:
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        problem = f"is damaged: {error}"
    except (zipfile.BadZipFile, NotImplementedError, PickleError) as error:
        problem = f"cannot be read as a tensor: {error}"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, struct.error,
            RecursionError, MemoryError, EOFError, RuntimeError):  # fmt: skip
        problem = "is damaged, or describes no plain tensor"
    torn = memory.find_problem() if isinstance(memory, MappedFile) else None
    raise UnreadableTensor(torn or f"{Path(path).name} {problem}")


class _Archive:
    """The members of a ``.pt`` file, as slices of its memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._members = read_members(memory)
        roots = [name[:-8] for name in self._members if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise PickleError("it holds no single data.pkl, as files of torch.save do")
        self._root = roots[0]

    def pickle(self) -> bytes:
        """Return the pickle that describes the tensor."""
        start, size = self._place("data.pkl")
        if size > MAX_PICKLE_BYTES:
            raise PickleError(f"its description takes {size} bytes; a tensor's takes few")
        return self.memory[start : start + size]

    def locate_storage(self, key: str) -> tuple[int, int]:
        """Return the offset and the size of a storage, in bytes."""
        return self._place(f"data/{key}")

    def is_little_endian(self) -> bool:
        """Return True if elements are little-endian, which is the default without a member ``byteorder``."""
        if self._root + "byteorder" not in self._members:
            return True
        start, size = self._place("byteorder")
        order = self.memory[start : start + min(size, 16)] or b"little"
        if order not in (b"little", b"big"):
            raise PickleError("its byte order is neither little nor big")
        return order == b"little"

    def _place(self, name: str) -> tuple[int, int]:
        member = self._members.get(self._root + name)
        if member is None:
            raise PickleError(f"it lacks {name}")
        flags, method, compressed_size, size, header = member
        if method != zipfile.ZIP_STORED or flags & 1:
            raise PickleError(f"{name} is compressed or encrypted, which torch.save never does")
        mark, names, extras = _LOCAL_HEADER.unpack_from(self.memory, header)
        if mark != b"PK\x03\x04":
            raise PickleError(f"{name} does not begin where the directory says")
        start = header + _LOCAL_HEADER.size + names + extras
        if size != compressed_size or start + size > len(self.memory):
            raise PickleError(f"{name} claims more bytes than the file holds")
        return start, size


@dataclass(frozen=True, slots=True)
class _Outline:
    """The description of a tensor.

    Attributes:
        key: The key of its storage.
        dtype: The type of its elements.
        offset: The offset of its first element in the storage, in bytes.
        shape: The sizes.
        strides: The strides, in bytes.
        reach: Number of the storage's elements up to the last one that the tensor uses.
        count: Number of its elements.
        conjugate: True if the elements are stored conjugated.
        negative: True if the elements are stored negated.
    """

    key: str
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reach: int
    count: int
    conjugate: bool = False
    negative: bool = False


def _read_outline(program: bytes) -> _Outline:
    """Return the description in a pickle; equal short pickles are interpreted once."""
    if len(program) > USUAL_PICKLE_BYTES:
        return _create_outline(interpret(program))
    return _read_usual_outline(program)


@lru_cache(maxsize=256)
def _read_usual_outline(program: bytes) -> _Outline:
    return _create_outline(interpret(program))


def _create_outline(described: Any) -> _Outline:
    if not isinstance(described, PickledCall):
        raise PickleError(f"it holds {type(described).__name__}, not a tensor")
    name = described.function.name
    arguments = described.arguments
    if name == "_rebuild_parameter":
        return _create_outline(arguments[0])
    if name == "_rebuild_tensor_v2":
        storage, offset, shape, strides = arguments[:4]
        dtype = _STORAGE_DTYPES.get(storage.kind.name) if isinstance(storage, Storage) else None
        flags = arguments[6] if len(arguments) > 6 else None
    elif name == "_rebuild_tensor_v3":
        storage, offset, shape, strides = arguments[:4]
        dtype = arguments[6].name if isinstance(arguments[6], PickledName) else None
        flags = arguments[7] if len(arguments) > 7 else None
    else:
        raise PickleError(f"tensors made by {name} are not supported")
    if not isinstance(storage, Storage) or dtype not in _DTYPES:
        raise PickleError("its element type is not known")
    sizes = (offset, *shape, *strides)
    if any(type(size) is not int or size < 0 for size in sizes) or len(shape) != len(strides):
        raise PickleError("its shape, strides or offset are not non-negative integers")
    if len(shape) > 32:
        raise PickleError("it has more than 32 dimensions")
    flags = flags if isinstance(flags, dict) else {}
    kind = _DTYPES[dtype]
    return _Outline(
        storage.key,
        kind,
        offset * kind.itemsize,
        tuple(shape),
        tuple(stride * kind.itemsize for stride in strides),
        offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)),
        math.prod(shape),
        flags.get("conj") is True,
        flags.get("neg") is True,
    )


def _create_array(outline: _Outline, memory: Memory, start: int, size: int, is_native: bool) -> np.ndarray[Any, Any]:
    """Return the tensor, whose storage takes ``size`` bytes of ``memory`` from ``start`` on."""
    dtype, shape = outline.dtype, outline.shape
    held, rest = divmod(size, dtype.itemsize)
    if rest:
        raise PickleError(f"storage {outline.key} is no whole number of elements")
    if outline.count == 0:
        return np.empty(shape, dtype)
    if outline.reach > held:
        raise PickleError(f"its shape {list(shape)} reaches element {outline.reach - 1} of a storage of {held}")
    if outline.count > max(held, MAX_EXPANDED_ELEMENTS):
        raise PickleError(f"it expands {held} stored elements to {outline.count}")
    stored = dtype if is_native else dtype.newbyteorder()
    array: np.ndarray[Any, Any] = np.ndarray(shape, stored, memory, start + outline.offset, outline.strides)
    if is_native and not outline.conjugate and not outline.negative:
        return array
    copy = array if is_native else array.astype(dtype)
    if outline.conjugate:
        copy = np.conj(copy)
    if outline.negative:
        copy = -copy
    check_unchanged(array)
    return copy
