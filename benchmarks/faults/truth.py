"""Checks of statements against the recorded tensors, by code that shares nothing with the comparison.

A statement is read for the claims that these rules know; each is held against the tensors of both runs in
float64. ``falsehoods`` returns those that do not hold.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from faults.cases import Cause

Array = npt.NDArray[Any]
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROOM = {"float64": 64.0, "float32": 64.0, "float16": 4.0, "bfloat16": 4.0}
"""Units of the last place, relative to the root mean square, within which inputs agree."""
ENDLESS = 1e30
"""Magnitude from which values, such as those of masks, must be equal and do not count as a scale."""

INPUTS_AGREE = re.compile(
    r"(its|all|the|recorded) (\w+ )?inputs (all )?(agree|are (the same|equal|identical))"
    r"|none of (its|their) (\w+ )?inputs differs?|(same|equal|identical) inputs"
)
INPUTS_DIFFER = re.compile(r"its inputs differ")
VALUES = re.compile(r"(\S+) against (\S+)")
DTYPES = re.compile(r"is (?:torch\.)?(\w+) in the target and (?:torch\.)?(\w+) in the golden")
ONLY = re.compile(r"only (?:in )?the (target|golden)|(?:is )?(missing|inserted)\b")
DIFFERS = re.compile(r"\bdiffers?\b|\bis changed\b|\bchanges\b")
SIDES = {"input_args": "input", "input_kwargs": "input", "input": "input", "output": "output"}
NUMBERS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "BOOL": "?",
}  # fmt: skip


class Recorded:
    """The records and tensors of one rank and step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data: dict[str, Any] = json.loads((directory / "dump.json").read_text())["data"]

    @cached_property
    def _file(self) -> tuple[bytes, int, dict[str, Any], dict[str, str]]:
        content = (self.directory / "dump_tensor_data" / "tensors.safetensors").read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        aliases = json.loads(header.pop("__metadata__", {}).get("alias", "{}"))
        return content, start, header, aliases

    def leaves(self, op: str) -> dict[str, Any]:
        """Return the leaves of a record by the rest of their row's name; None stands for no value."""
        leaves: dict[str, Any] = {}
        for section, value in self.data.get(op, {}).items():
            prefix = SIDES.get(section, section)
            for path, leaf in flat(value):
                leaves[".".join([prefix, *path])] = leaf
        return leaves

    def tensor(self, leaf: Mapping[str, Any]) -> Array | None:
        """Return the tensor of a leaf; None if it was not recorded, or is of a dtype that is not read."""
        content, start, header, aliases = self._file
        name = str(leaf.get("data_name") or "").removesuffix(".pt")
        entry = header.get(aliases.get(name, name))
        if entry is None:
            return None
        first, last = entry["data_offsets"]
        part = content[start + first : start + last]
        if entry["dtype"] == "BF16":
            wide = np.frombuffer(part, "<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(entry["shape"])
        if entry["dtype"] not in NUMBERS:
            return None
        return np.frombuffer(part, NUMBERS[entry["dtype"]]).reshape(entry["shape"])


def flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the leaves of a section with their paths."""
    if isinstance(value, dict) and not isinstance(value.get("type"), str):
        for key, inner in value.items():
            yield from flat(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from flat(inner, (*path, str(number)))
    else:
        yield path, value


def dtype_of(leaf: Mapping[str, Any]) -> str:
    """Return the dtype of a tensor's leaf, without its prefix."""
    return str(leaf.get("dtype", "")).removeprefix("torch.")


def is_tensor(leaf: Any) -> bool:
    """Return True for the leaf of a tensor or parameter."""
    return isinstance(leaf, dict) and "dtype" in leaf


def distance(target: Array, golden: Array) -> float:
    """Return the root mean square of the difference relative to that of the golden; inf if not comparable."""
    if target.shape != golden.shape:
        return np.inf
    first, second = target.astype(np.float64), golden.astype(np.float64)
    usual = (np.abs(first) < ENDLESS) & (np.abs(second) < ENDLESS)
    if not np.array_equal(first[~usual], second[~usual], equal_nan=True):
        return np.inf
    difference = np.sqrt(np.mean((first[usual] - second[usual]) ** 2)) if usual.any() else 0.0
    scale = np.sqrt(np.mean(second[usual] ** 2)) if usual.any() else 0.0
    return 0.0 if difference == 0 else float(difference / scale) if scale else np.inf


class Pair:
    """Both sides of a call."""

    def __init__(self, target: Recorded, golden: Recorded, op: str, partner: str) -> None:
        self.runs = target, golden
        self.leaves = target.leaves(op), golden.leaves(partner)
        self.exists = op in target.data and partner in golden.data

    def difference(self, name: str) -> str:
        """Return in words by what a leaf differs beyond rounding; empty if it does not."""
        return self._difference(name, exact=False)

    def is_equal(self, name: str) -> bool:
        """Return True if both sides of a leaf are the same bits."""
        return not self._difference(name, exact=True)

    def _difference(self, name: str, exact: bool) -> str:
        target, golden = (leaves.get(name) for leaves in self.leaves)
        if not (is_tensor(target) and is_tensor(golden)):
            shown = [leaf.get("value", leaf) if isinstance(leaf, dict) else leaf for leaf in (target, golden)]
            return "" if target == golden else f"{name}: {shown[0]!r:.60} against {shown[1]!r:.60}"
        arrays = [run.tensor(leaf) for run, leaf in zip(self.runs, (target, golden))]
        dtypes = dtype_of(target), dtype_of(golden)
        if arrays[0] is None or arrays[1] is None:  # the rest of the leaf is compared: shape and statistics
            shown = [{key: leaf[key] for key in leaf if key != "data_name"} for leaf in (target, golden)]
            return "" if shown[0] == shown[1] else f"{name}: other statistics, and no data"
        if exact and dtypes[0] != dtypes[1]:
            return f"{name}: {dtypes[0]} against {dtypes[1]}"
        if exact or not all(dtype in EPS for dtype in dtypes):
            same = np.array_equal(arrays[0], arrays[1], equal_nan=all(dtype in EPS for dtype in dtypes))
            return "" if same else f"{name}: differs by {distance(arrays[0], arrays[1]):.2g}"
        coarser = max(dtypes, key=EPS.__getitem__)
        apart, room = distance(arrays[0], arrays[1]), ROOM[coarser] * EPS[coarser]
        return f"{name}: differs by {apart:.2g} where {room:.2g} is rounding" if apart > room else ""

    def inputs(self) -> list[str]:
        """Return the names of all inputs, arguments and parameters of either side."""
        names = dict.fromkeys([*self.leaves[0], *self.leaves[1]])
        return [name for name in names if name.split(".")[0] in ("input", "parameters")]


def falsehoods(target: Path, golden: Path, cause: Cause, partner: str = "") -> list[str]:
    """Return by what the recorded tensors contradict a cause.

    Args:
        target: The directory of the target's rank and step, recorded with its tensors.
        golden: That of the golden.
        cause: The cause; calls that neither run recorded are not checked.
        partner: The key of the golden's call, if it is another.
    """
    runs = Recorded(target), Recorded(golden)
    pair = Pair(*runs, cause.op, partner or cause.op)
    if not pair.exists:
        return []
    statement = cause.statement.partition("; 0 of")[0]
    row = cause.row.removeprefix(cause.op).strip(".")
    wrong: list[str] = []
    apart = [text for text in map(pair.difference, pair.inputs()) if text]
    if INPUTS_AGREE.search(statement) and apart:
        wrong += [f"its inputs do not agree: {'; '.join(apart)}"]
    elif INPUTS_DIFFER.search(statement) and all(map(pair.is_equal, pair.inputs())):
        wrong += ["all of its inputs are equal"]
    leaves = [side.get(row) for side in pair.leaves]
    if row not in pair.leaves[0] and row not in pair.leaves[1]:
        return wrong
    if dtypes := DTYPES.search(statement):
        if [dtype_of(leaf) for leaf in leaves if is_tensor(leaf)] != list(dtypes.groups()):
            wrong += [f"its dtypes are {leaves[0]} and {leaves[1]}"]
    elif DIFFERS.search(statement) and not INPUTS_DIFFER.match(statement) and pair.is_equal(row):
        wrong += [f"{row} is equal in both runs"]
    return wrong


def count_of(run: Recorded, op: str) -> int:
    """Return the number of calls of the API or module that an op key names."""
    counts = Counter(re.sub(r"\.\d+\b", "", key) for key in run.data)
    return counts[re.sub(r"\.\d+\b", "", op)]
