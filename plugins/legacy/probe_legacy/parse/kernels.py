"""Two directories of ACL dumps compared array by array, as the command ``vc`` of the old tool did."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from probe_recording.api import load_npy
from probe_reporters.api import neutralise

from probe_core.errors import UnreadableTensor, UserError, make_printable
from probe_core.files.atomic import write_atomically
from probe_core.progress import report_progress
from probe_legacy.acl.convert import describe_problem
from probe_legacy.acl.dump import AclDump, parse_dump_name
from probe_legacy.acl.header import INPUT, OUTPUT, Section
from probe_legacy.acl.layouts import DEVICE_LAYOUT, HOST_LAYOUT
from probe_legacy.acl.tree import find_dumps
from probe_legacy.acl.wire import DamagedDump

Array = np.ndarray[Any, Any]
COLUMNS = (
    "NPU File Name", "Bench File Name", "Mean", "Bench Mean", "Md5 Consistency", "Max Abs Error",
    "Max Relative Error", "Message",
)  # fmt: skip
_CONVERTED_NAME = re.compile(r"(?P<dump>.+)\.(?P<place>(?:input|output)\.\d{1,6})\.npy")
NO_PARTNER = "no partner on the other side"

Arrays = Mapping[str, Callable[[str], Array]]
"""Functions that return an array of a call in a layout, by its place, such as ``input.0``."""
Operator = tuple[str, str]
"""The type and the name of an operator."""


class Kernel(NamedTuple):
    """The arrays of one call of an operator.

    Attributes:
        time: The time of the call, by which calls are paired.
        name: The name of its dump.
        arrays: A function that returns the functions which read its arrays, by their places.
    """

    time: int
    name: str
    arrays: Callable[[], Arrays]


@dataclass
class KernelComparison:
    """The result of comparing two directories.

    Attributes:
        pairs: The number of arrays that have a partner.
        equal: The number of pairs with equal bytes.
        alone: The number of arrays and dumps without a partner.
        problems: A sentence on each dump that cannot be read.
        table: The table.
    """

    table: Path
    pairs: int = 0
    equal: int = 0
    alone: int = 0
    problems: list[str] = field(default_factory=list)


def compare(mine: Path, golden: Path, output: Path, stamp: str) -> KernelComparison:
    """Compare two directories and write the table.

    Raises:
        UserError: A directory holds no dumps, or the table cannot be written.
    """
    result = KernelComparison(output / f"batch_compare_{stamp}.csv")
    sides = find_kernels(mine), find_kernels(golden)
    operators = list(dict.fromkeys([*sides[0], *sides[1]]))
    with (
        write_atomically(result.table, f"The table {result.table.name}") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, operator in enumerate(operators):
            report_progress("comparing", number, len(operators))
            calls = [side.get(operator, []) for side in sides]
            for place in range(max(map(len, calls))):
                pair = [side_calls[place] if place < len(side_calls) else None for side_calls in calls]
                for cells in _iterate_rows(pair, result):
                    writer.writerow([neutralise(str(cell)) for cell in cells])
    return result


def find_kernels(directory: Path) -> dict[Operator, list[Kernel]]:
    """Return the calls of each operator in a directory of dumps or of converted dumps, by their times.

    Raises:
        UserError: It is no directory, or there are none.
    """
    if not directory.is_dir():
        raise UserError(f"{directory} is no directory.", "Give a directory of dumps.")
    kernels: dict[Operator, list[Kernel]] = {}
    converted: dict[Path, dict[str, Path]] = {}
    for path in sorted(directory.rglob("*.npy")):
        if match := _CONVERTED_NAME.fullmatch(path.name):
            converted.setdefault(path.with_name(match["dump"]), {})[match["place"]] = path
    if not converted:
        if next(directory.rglob("dump.json"), None) is not None:
            raise UserError(
                f"{directory} holds a recorded run, no ACL dumps.",
                "Compare runs with: probe compare TARGET GOLDEN",
            )
        for dump in find_dumps(directory):
            _add(kernels, dump.name, dump.path, partial(_read_dump_arrays, dump.path))
    for path, files in converted.items():
        _add(kernels, path.name, path, partial(_read_file_arrays, files))
    for calls in kernels.values():
        calls.sort(key=lambda call: (call.time, call.name))
    return kernels


def _add(
    kernels: dict[Operator, list[Kernel]],
    name: str,
    path: Path,
    arrays: Callable[[], Arrays],
) -> None:
    parts = parse_dump_name(name)
    operator = (parts.type, parts.name) if parts else ("", name)
    kernels.setdefault(operator, []).append(Kernel(int(parts.time) if parts else 0, path.name, arrays))


def _read_dump_arrays(path: Path) -> Arrays:
    dump = AclDump(path)
    if dump.is_debug:
        return {}
    return {
        f"{section.side}.{section.index}": partial(_read_array, dump, section)
        for section in dump.header.sections
        if section.side in (INPUT, OUTPUT)
    }


def _read_array(dump: AclDump, section: Section, layout: str) -> Array:
    return dump.read_array(section, layout).array


def _read_file_arrays(files: Mapping[str, Path]) -> Arrays:
    return {place: partial(_load_array, path) for place, path in files.items()}


def _load_array(path: Path, layout: str) -> Array:
    """Return a converted array, which is in the layout that it was converted to."""
    return load_npy(path)


def _iterate_rows(pair: Sequence[Kernel | None], result: KernelComparison) -> Iterator[Sequence[object]]:
    """Yield the rows of a pair of calls, one of which may be missing."""
    opened: list[Arrays] = []
    for kernel in pair:
        try:
            opened.append({} if kernel is None else kernel.arrays())
        except (DamagedDump, OSError) as error:
            opened.append({})
            result.problems.append(describe_problem(Path(kernel.name if kernel else ""), error))
    for place in dict.fromkeys([*opened[0], *opened[1]]):
        names = [
            f"{kernel.name}.{place}" if kernel is not None and place in kernel_arrays else ""
            for kernel, kernel_arrays in zip(pair, opened)
        ]
        if not all(names):
            result.alone += 1
            yield *names, "", "", "", "", "", NO_PARTNER
            continue
        result.pairs += 1
        try:
            arrays = [kernel_arrays[place](HOST_LAYOUT) for kernel_arrays in opened]
            if arrays[0].shape != arrays[1].shape:  # one may have been converted in the layout of the device
                arrays = [kernel_arrays[place](DEVICE_LAYOUT) for kernel_arrays in opened]
        except (DamagedDump, UnreadableTensor, OSError) as error:
            result.problems.append(describe_problem(Path(names[0]), error))
            yield *names, "", "", "", "", "", make_printable(str(error))
            continue
        cells = measure(arrays[0], arrays[1])
        result.equal += cells[2] is True
        yield *names, *cells


def measure(mine: Array, golden: Array) -> tuple[object, ...]:
    """Return the cells on a pair of arrays: means, equality, largest errors, a message.

    The relative error is relative to the golden; a zero there counts as the smallest step of its type.
    """
    if mine.shape != golden.shape or mine.dtype != golden.dtype:
        descriptions = [f"{array.dtype} {list(array.shape)}" for array in (mine, golden)]
        return "", "", "", "", "", f"{descriptions[0]} and {descriptions[1]} cannot be compared"
    if not mine.size:
        return "", "", True, "", "", "no values"
    is_equal = mine.tobytes() == golden.tobytes()
    kind = golden.dtype
    step = np.finfo(kind if kind.kind in "fc" else np.float64).eps
    wide = np.complex128 if kind.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        target_values, golden_values = mine.astype(wide), golden.astype(wide)
        error = np.where(target_values == golden_values, 0.0, np.abs(target_values - golden_values))
        relative = error / np.abs(np.where(golden_values == 0, step, golden_values))
        return target_values.mean(), golden_values.mean(), is_equal, error.max(), relative.max(), ""
