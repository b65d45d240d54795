"""Parsing of the JSON of one record into slots.

The format is docs/formats.md#leaves, the names and order of the slots are docs/pairing.md#rows. Every field
is checked here, with its path in the error message, so that later code can rely on it.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

from probe_core.model import Kind, Side, Statistic, Statistics, Transfer, Value
from probe_core.store.names import is_debug, is_gradient
from probe_recording.reading.columns import RunColumnsBuilder

FIELDS = (
    ("input_args", Side.INPUT),
    ("input_kwargs", Side.INPUT),
    ("input", Side.INPUT),
    ("parameters", Side.PARAMETERS),
    ("output", Side.OUTPUT),
)
RANK_NAMES = frozenset({"src", "dst", "group_src", "group_dst"})
NO_DATA_NAME = "-1"
STATISTICS = ("Max", "Min", "Mean", "Norm")
MAX_DEPTH = 200

_SCALARS = {"int": "<class 'int'>", "float": "<class 'float'>", "bool": "<class 'bool'>",
            "str": "<class 'str'>", "complex": "<class 'complex'>"}  # fmt: skip


class FieldError(ValueError):
    """A field that violates the format, with its path, which grows while the error travels outwards."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def prepend_step(self, step: str) -> FieldError:
        """Prepend one step to the path and return this error."""
        self.path = f"{step}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path[:200]} {self.message}"


def add_record(columns: RunColumnsBuilder, key: str, fields: Any) -> None:
    """Append a record, with its values in the order of the tables: inputs, parameters, outputs.

    Args:
        columns: The columns of the run.
        key: The name of the record.
        fields: The JSON value of the record.

    Raises:
        FieldError: A field violates the format.
    """
    columns.begin(key)
    try:
        if is_debug(key) or is_gradient(key):
            _walk(fields, "", Side.DEBUG if is_debug(key) else Side.PARAMETERS_GRAD, columns, 0)
        elif not isinstance(fields, dict):
            raise FieldError("", "must be an object")
        else:
            for name, side in FIELDS:
                if name in fields:
                    _walk_member(fields[name], name, "", side, columns, 0)
    except FieldError as error:
        raise error.prepend_step(f'data["{key}"]') from None
    columns.end()


def _walk(value: Any, path: str, side: Side, columns: RunColumnsBuilder, depth: int) -> None:
    """Append the values below ``value``, whose path is ``path``."""
    if depth > MAX_DEPTH:
        raise FieldError("", f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        start = f"{path}." if path else ""
        for number, item in enumerate(value):
            inner = path if side is Side.PARAMETERS_GRAD else f"{start}{number}"
            try:
                if type(item) is dict and "dtype" in item and type(item.get("type")) is str:
                    columns.add(side, inner, _parse_tensor(item))  # the most frequent case
                else:
                    _walk(item, inner, side, columns, depth + 1)
            except FieldError as error:
                raise error.prepend_step(f"[{number}]") from None
    elif isinstance(value, dict) and not isinstance(value.get("type"), str):
        if "class_type" in value and _strip_packages(value["class_type"]) == "P2POp":
            _walk_transfer(value, path, side, columns, depth)
            return
        for key, item in value.items():
            _walk_member(item, key, f"{path}.{key}" if path else key, side, columns, depth + 1)
    else:
        columns.add(side, path, leaf_of(value, path.rpartition(".")[2]))


def _walk_transfer(value: dict[str, Any], path: str, side: Side, columns: RunColumnsBuilder, depth: int) -> None:
    """Append the tensor of a P2POp, with the operation and the other rank."""
    start = len(columns)
    _walk_member(value.get("tensor"), "tensor", path, side, columns, depth + 1)
    op, peer = value.get("op"), value.get("peer")
    if isinstance(op, str) and type(peer) is int:
        columns.set_transfer(start, Transfer(op, peer))


def _walk_member(value: Any, key: str, path: str, side: Side, columns: RunColumnsBuilder, depth: int) -> None:
    try:
        _walk(value, path, side, columns, depth)
    except FieldError as error:
        raise error.prepend_step(f".{key}") from None


def leaf_of(value: Any, name: str) -> Value:
    """Return the value of one leaf; ``name`` is the last part of its path."""
    if value is None:
        return Value(Kind.NULL, "None", "None")
    if not isinstance(value, dict):
        return _parse_scalar(_SCALARS.get(type(value).__name__, str(type(value))), value)
    if "dtype" in value:
        return _parse_tensor(value)
    kind = value["type"]
    bare = _strip_packages(kind)
    inner = value.get("format") if bare == "memory_format" else value.get("value")
    if bare == "Size":
        return _create_scalar_value(kind, str(inner), Statistics(), str(inner))
    if kind == "slice":
        return _create_scalar_value(kind, _format_slice(inner), Statistics(), str(inner))
    if bare == "ProcessGroup":
        ranks = str(value.get("group_ranks", inner))
        return Value(Kind.SCALAR, kind, "[]", None, Statistics(*(ranks,) * 4), ranks)
    if name in RANK_NAMES:
        shown = inner if _is_number(inner) else str(inner)
        return Value(Kind.SCALAR, kind, "[]", None, Statistics(*(shown,) * 4), str(inner))
    if kind == "ellipsis":
        return _parse_scalar(kind, inner)
    if kind in _SCALARS:
        return _parse_scalar(_SCALARS[kind], inner)
    return _parse_scalar(_SCALARS.get(type(inner).__name__, str(type(inner))), inner)


def _strip_packages(name: object) -> str:
    """Return the name of a type without its packages."""
    return name.rpartition(".")[2] if isinstance(name, str) else ""


def _parse_scalar(dtype: str, value: Any) -> Value:
    shown: Statistic = value if _is_number(value) else str(value)
    return _create_scalar_value(dtype, "[]", Statistics(shown, shown, shown, shown), str(value))


def _create_scalar_value(dtype: str, extent: str, statistics: Statistics, text: str) -> Value:
    return Value(Kind.SCALAR, dtype, extent, None, statistics, _compute_crc32(text))


@lru_cache(maxsize=4096)
def _compute_crc32(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _format_slice(value: Any) -> str:
    return f"({len(value)},)" if isinstance(value, list) else "()"


def _parse_tensor(value: dict[str, Any]) -> Value:
    get = value.get
    dtype, raw, requires_grad, checksum = value["dtype"], get("shape"), get("requires_grad"), get("md5")
    statistics = Statistics(get("Max"), get("Min"), get("Mean"), get("Norm"))
    if type(dtype) is not str:
        raise FieldError(".dtype", "must be a text")
    if type(raw) is not list and (raw is not None or "shape" in value):
        raise FieldError(".shape", "must be a list of sizes")
    try:
        shape, extent = _parse_shape(tuple(raw or ()))
    except (TypeError, ValueError):
        raise FieldError(".shape", "must hold non-negative integers") from None
    if requires_grad is not None and type(requires_grad) is not bool:
        raise FieldError(".requires_grad", "must be true or false")
    if checksum is not None:
        if not isinstance(checksum, (str, int, float)):
            raise FieldError(".md5", "must be a text or a number")
        checksum = str(checksum)
    if not _STATISTIC_TYPES.issuperset(map(type, statistics)):
        wrong = next(name for name, item in zip(STATISTICS, statistics) if type(item) not in _STATISTIC_TYPES)
        raise FieldError(f".{wrong}", "must be a number, a text or null")
    data_name = get("data_name")
    if data_name is not None:
        data_name = _parse_data_name(data_name)
    return Value(Kind.TENSOR, dtype, extent, shape, statistics, checksum, requires_grad, data_name)


@lru_cache(maxsize=4096)
def _parse_shape(raw: tuple[Any, ...]) -> tuple[tuple[int, ...], str]:
    for size in raw:
        if type(size) is not int or size < 0:
            raise ValueError(size)
    return raw, str(list(raw))


_STATISTIC_TYPES = frozenset({float, int, bool, str, type(None)})


def _parse_data_name(value: Any) -> str | None:
    if value in ("", NO_DATA_NAME):
        return None
    if not isinstance(value, str):
        raise FieldError(".data_name", "must be a text")
    if "/" in value or "\\" in value or "\0" in value or value in (".", ".."):
        raise FieldError(".data_name", "must be the name of a file inside the run directory")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
