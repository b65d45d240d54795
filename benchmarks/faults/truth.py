"""Checks of statements against the recorded tensors, by code that shares nothing with the comparison.

A statement is read for the claims that these rules know; each is held against the tensors of both runs in
float64. ``falsehoods`` returns those that do not hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from faults.cases import Cause

Array = npt.NDArray[Any]
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROOM = {"float64": 64.0, "float32": 64.0, "float16": 4.0, "bfloat16": 4.0}
"""Multiples of a dtype's eps, relative to the root mean square, within which inputs agree."""
MASKS = -1e4
"""Magnitude from which on the least element of a tensor is the constant of an additive mask."""
PRINTED = 0.1
"""Relative error of a distance that is printed with two digits."""
ENDLESS = 1e30
"""Magnitude from which values, such as those of masks, must be equal and do not count as a scale."""

INPUTS_AGREE = re.compile(
    r"(its|all|the|recorded) (\w+ )?inputs (all )?(agree|are (the same|equal|identical))"
    r"|none of (its|their) (\w+ )?inputs differs?|(same|equal|identical) inputs"
)
MASKED_ONLY = re.compile(
    r"(?:inputs|receives|takes in) differ at most (?:within rounding and )?(?:in what is masked|where a mask)"
)
STATISTICS_AGREE = re.compile(r"the statistics of (?:its inputs|\d+ of its \d+ inputs|what it takes in) agree")
MIXED_UP = re.compile(r"agree in their statistics, but not element by element")
INPUTS_DIFFER = re.compile(r"its inputs differ(?: by (?:up to )?(\S*\d|inf))?")
BY = re.compile(r"(?:differs|(?<!unmasked rms )off) by ([-+.\de]*\d) (?:of|times) the golden's root mean square")
DTYPES = re.compile(r"is (?:torch\.)?(\w+) in the target and (?:torch\.)?(\w+) in the golden")
ONLY = re.compile(
    r"only (?:in )?the (?:target|golden)|in the (?:target|golden) only|is called where the golden calls"
    r"|\b(?:missing|inserted)\b"
)
GRADIENT_ONLY = re.compile(r"a tensor that requires a gradient in the (target|golden) only")
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

    def count(self, op: str, module: str = "") -> int:
        """Return the number of calls of the API or module of an op key inside a module, or inside its own."""
        file = self.directory / "construct.json"
        parents = json.loads(file.read_text()) if file.is_file() else {}
        place = plain_name(op), module or parents.get(op)
        return sum((plain_name(key), parents.get(key)) == place for key in self.data)

    def leaves(self, op: str) -> dict[str, Any]:
        """Return the leaves of a record by the rest of their row's name; None stands for no value."""
        leaves: dict[str, Any] = {}
        for section, value in self.data.get(op, {}).items():
            prefix = SIDES.get(section, section)
            for path, leaf in flat(value):
                leaves[".".join([prefix, *path])] = leaf
        return leaves

    def tensor(self, leaf: Any) -> Array | None:
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
            return np.asarray(wide.view("<f4").reshape(entry["shape"]))
        if entry["dtype"] not in NUMBERS:
            return None
        return np.asarray(np.frombuffer(part, NUMBERS[entry["dtype"]]).reshape(entry["shape"]))


def plain_name(op: str) -> str:
    """Return the name of an op without its number."""
    return re.sub(r"\.\d+(?=\.(forward|backward)$)|(?<=ward)\.\d+$", "", op)


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


def dtype_of(leaf: Any) -> str:
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


def unmasked(array: Array) -> Array:
    """Return which elements an additive mask leaves: those far above its constant."""
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    least = finite.min() if finite.size else 0.0
    kept = values != -np.inf
    return np.asarray(kept & (values > least / 2) if least <= MASKS else kept)


def statistics(array: Array) -> list[float]:
    """Return maximum, minimum, mean and norm."""
    values = array.astype(np.float64)
    return [values.max(), values.min(), values.mean(), float(np.sqrt((values**2).sum()))]


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
        target, golden = [leaves.get(name) for leaves in self.leaves]
        if not (is_tensor(target) and is_tensor(golden)):
            shown = [leaf.get("value", leaf) if isinstance(leaf, dict) else leaf for leaf in (target, golden)]
            return "" if target == golden else f"{name}: {shown[0]!r:.60} against {shown[1]!r:.60}"
        assert target is not None and golden is not None
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

    def apart(self, name: str) -> float | None:
        """Return the distance of both sides of a tensor; None if a side has no data."""
        both = self.arrays(name)
        return distance(*both) if both else None

    def arrays(self, name: str) -> list[Array]:
        """Return both sides of a tensor; empty if a side has no data."""
        arrays = [run.tensor(leaves[name]) for run, leaves in zip(self.runs, self.leaves) if name in leaves]
        both = [array for array in arrays if array is not None]
        return both if len(both) == len(self.runs) else []

    def statistical_difference(self, name: str) -> str:
        """Return in words by what maximum, minimum, mean or norm differ beyond rounding; empty if not."""
        arrays = self.arrays(name) if self.difference(name) else []
        if not arrays or not arrays[0].size:
            return self.difference(name)
        first, second = map(statistics, arrays)
        dtypes = [dtype_of(side[name]) for side in self.leaves]
        room = max([ROOM[dtype] * EPS[dtype] for dtype in dtypes if dtype in EPS] or [0.0])
        scales = [max(abs(second[0]), abs(second[1]))] * 3 + [second[3]]
        is_other = [
            one != other and not abs(one - other) <= room * scale and not (np.isnan(one) and np.isnan(other))
            for one, other, scale in zip(first, second, scales)
        ]
        return f"the statistics of {name} differ: {first} against {second}" if any(is_other) else ""

    def unmasked_difference(self, name: str) -> str:
        """Return in words by what a leaf differs beyond rounding and beyond what is masked; empty if not."""
        text = self.difference(name)
        arrays = self.arrays(name) if text else []
        if not arrays or arrays[0].shape != arrays[1].shape:
            return text
        kept = [unmasked(array) for array in arrays]
        if all(one.all() for one in kept) or not np.array_equal(*kept):
            return text
        room = max(ROOM[dtype] * EPS[dtype] for dtype in (dtype_of(side[name]) for side in self.leaves))
        return text if distance(*(array[kept[0]] for array in arrays)) > room else ""

    def named(self, name: str) -> str | None:
        """Return the name of a leaf as it is called here; None if neither side has it."""
        name = name.replace("kwargs.", "input.", 1)
        names = (name, f"{name}.0")  # the gradients of a parameter are a list
        return next((one for one in names if any(one in leaves for leaves in self.leaves)), None)

    def inputs(self) -> list[str]:
        """Return the names of all inputs, arguments and parameters of either side."""
        names = dict.fromkeys([*self.leaves[0], *self.leaves[1]])
        return [name for name in names if name.split(".")[0] in ("input", "parameters")]


def falsehoods(target: Path, golden: Path, cause: Cause) -> list[str] | None:
    """Return by what the recorded tensors contradict a cause; None if it makes no claim on a recorded call.

    Args:
        target: The directory of the target's rank and step, recorded with its tensors.
        golden: That of the golden.
        cause: The cause.
    """
    if not ((target / "dump.json").is_file() and (golden / "dump.json").is_file()):
        return None
    if cause.kind == "phase":
        return None  # the phases of a step are no calls
    runs = Recorded(target), Recorded(golden)
    if only := GRADIENT_ONLY.search(cause.statement):
        return [*wrong_on_gradient(runs, cause, only[1])]
    if ONLY.search(cause.statement):
        module = cause.modules[0] if cause.modules else ""
        counts = [run.count(cause.op, module) for run in runs]
        return [] if counts[0] != counts[1] else [f"both runs make {counts[0]} such calls there"]
    pair = Pair(*runs, cause.op, cause.partner or cause.op)
    row = pair.named(cause.row.removeprefix(cause.op).strip("."))
    if not pair.exists:
        return None
    if cause.row and row is None:
        return ["neither run has such a row"]
    if MIXED_UP.search(cause.statement):
        return list(wrong_on_mixed(pair))
    return list(wrong_on_inputs(pair, cause.statement)) + list(wrong_on_row(pair, row, cause.statement))


def wrong_on_gradient(runs: tuple[Recorded, Recorded], cause: Cause, side: str) -> Iterator[str]:
    """Yield what contradicts that a tensor requires a gradient in the run of a side only."""
    keys = cause.op, cause.partner or cause.op
    row = cause.row.removeprefix(cause.op).strip(".")
    leaves = [run.leaves(key).get(row) or {} for run, key in zip(runs, keys)]
    needs = [bool(leaf.get("requires_grad")) for leaf in leaves]
    if needs != [side == "target", side == "golden"]:
        yield f"{row} requires a gradient: {needs[0]} in the target, {needs[1]} in the golden"


def wrong_on_mixed(pair: Pair) -> Iterator[str]:
    """Yield what contradicts that outputs agree in their statistics, but not element by element."""
    names = [name for name in pair.leaves[0] if name.startswith("output") and pair.arrays(name)]
    if not any(map(pair.difference, names)):
        yield "what it returns agrees element by element"
    yield from filter(None, map(pair.statistical_difference, names))


def wrong_on_inputs(pair: Pair, statement: str) -> Iterator[str]:
    """Yield what contradicts a statement on the inputs of a call."""
    if MASKED_ONLY.search(statement):
        if apart := [text for text in map(pair.unmasked_difference, pair.inputs()) if text]:
            yield f"its inputs differ beyond what is masked: {'; '.join(apart)}"
        return
    difference = pair.statistical_difference if STATISTICS_AGREE.search(statement) else pair.difference
    apart = [text for text in map(difference, pair.inputs()) if text]
    differ = INPUTS_DIFFER.search(statement)
    if INPUTS_AGREE.search(statement) or STATISTICS_AGREE.search(statement) or (differ and differ[1] == "0"):
        if apart:
            yield f"its inputs do not agree: {'; '.join(apart)}"
    elif differ and all(map(pair.is_equal, pair.inputs())):
        yield "all of its inputs are equal"


def wrong_on_row(pair: Pair, row: str | None, statement: str) -> Iterator[str]:
    """Yield what contradicts a statement on a value of a call."""
    if row is None:
        return
    leaves = [side.get(row) for side in pair.leaves]
    if dtypes := DTYPES.search(statement):
        if [dtype_of(leaf) for leaf in leaves if is_tensor(leaf)] != list(dtypes.groups()):
            yield f"the dtypes of {row} are {leaves[0]} and {leaves[1]}"
    elif DIFFERS.search(statement) and not INPUTS_DIFFER.match(statement):
        if pair.is_equal(row):
            yield f"{row} is equal in both runs"
        elif by := BY.search(statement):
            apart = pair.apart(row)
            if apart is not None and abs(apart - float(by[1])) > PRINTED * apart:
                yield f"{row} differs by {apart:.2g}"
