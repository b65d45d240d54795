"""Readers of the older tools' files, checked against the files: ``python tests/support/runs/older_dumps_check.py``.

A line for each folder of dumps shows the tool, its version, the number of files and rows, and how many
differences there are between the rows of the files and what the readers make of them; each is then told.
The argument is a directory with a folder for each dump; without it, the dumps of the tests are checked.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from probe_legacy.reading.lines import HOOKS, PTDBG, detect_format
from probe_legacy.reading.reader import HooksReader, PtdbgReader

from probe_core.model import Kind, Mode, Slot
from probe_core.model.run import Run

DATA = Path(__file__).parents[2] / "data"
TITLES = {PTDBG: "ptdbg_ascend", HOOKS: "torch_npu.hooks"}
VERSIONS = {"ptdbg23": "2.3", "ptdbg32": "3.2", "ptdbg40": "4.0.T2", "ptdbg60": "6.0", "ptdbg_att": "2.x",
            "hooks_300": "3.0.0", "hooks_50": "5.0", "hooks_": "3.0.rc3"}  # fmt: skip
"""Versions by the first letters of a folder."""
_NAME = re.compile(r"(.*)[._](\d+)[._](forward|backward)[._](input|output)([.\d]*)$")
_NAME_OF_HOOKS = re.compile(r"(?:\d+_)?(.*)()_(forward|backward)_(input|output)([.\d]*)$")
_FIXED = {"backward_input": "output", "backward_output": "input"}
Row = list[Any]


@dataclass
class Checked:
    """The outcome of a folder.

    Attributes:
        title: The tool and its version.
        files: The number of dumps.
        rows: The number of rows of values.
        stacks: The number of rows of call stacks.
        differences: A sentence on each difference.
    """

    title: str = "no dump"
    files: int = 0
    rows: int = 0
    stacks: int = 0
    differences: tuple[str, ...] = ()


def check_folder(folder: Path) -> Checked:
    """Return how the dumps in a folder are read."""
    checked = Checked()
    for path in sorted(folder.rglob("*.pkl")):
        kind = detect_format(path)
        if kind not in TITLES:
            checked.differences += (f"{path}: no reader takes it",)
            continue
        version = next((text for start, text in VERSIONS.items() if folder.name.startswith(start)), "?")
        checked.title = f"{TITLES[kind]} {version}"
        every = rows_in(path)
        checked.files += 1
        checked.stacks += sum(is_stack(row) for row in every)
        checked.rows += sum(not is_stack(row) for row in every)
        checked.differences += tuple(f"{path.name}: {text}" for text in differences_in(path))
    return checked


def rows_in(path: Path) -> list[Row]:
    """Return the rows of a file, read without the readers."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def is_stack(row: Row) -> bool:
    """Return True for a row of a call stack."""
    return "stack_info" in row[0]


def differences_in(path: Path) -> Iterator[str]:
    """Yield a sentence on each difference between a file and what its reader makes of it."""
    is_hooks = detect_format(path) == HOOKS
    run: Run = (HooksReader() if is_hooks else PtdbgReader()).open(path)
    try:
        every = rows_in(path)
        rows = [row for row in every if not is_stack(row)]
        slots = [slot for record in run.records() for slot in record.slots]
        read, held = Counter(map(_told, slots)), Counter(_expected(row, is_hooks) for row in rows)
        yield from (f"{count} row(s) {name} are not read" for name, count in (held - read).items())
        yield from (f"{count} row(s) {name} are not in the file" for name, count in (read - held).items())
        if len({slot.name for slot in slots}) < len(slots):
            yield "names occur twice"
        yield from (_of_hooks if is_hooks else _of_ptdbg)(path, run, rows, slots)
        yield from _of_stacks(run, every, is_hooks)
        if run.header.unfinished:
            yield f"is taken for unfinished: {run.header.unfinished}"
    finally:
        run.close()


def _told(slot: Slot) -> tuple[Any, ...]:
    """Return a slot in the words of the files: operator, phase, side, position, dtype, shape."""
    *parts, _, _ = slot.name[: len(slot.name) - len(slot.path)].split(".")
    key = ".".join(parts)
    module, api = (
        re.match(pattern, key)
        for pattern in (r"Module\.(.*)\.(forward|backward)\.\d+$", r"(.*)\.\d+\.(forward|backward)$")
    )
    match = module or api
    assert match is not None, slot.name
    operator = match[1].replace(".", "_")
    return operator, match[2], slot.side.value, slot.path, slot.value.dtype, slot.value.extent


def _expected(row: Row, is_hooks: bool) -> tuple[Any, ...]:
    """Return what a row says, read without the readers."""
    match = (_NAME_OF_HOOKS if is_hooks else _NAME).match(row[0])
    assert match is not None, row[0]
    operator, _, phase, side, path = match.groups()
    if is_hooks:
        side = _FIXED.get(f"{phase}_{side}", side)
    if len(row) == 2:
        dtype, shape = f"<class '{type(row[1]).__name__}'>", "[]"
    else:
        dtype, shape = row[-2:] if is_hooks else row[3:5]
    operator = operator.removeprefix("Module_").replace(".", "_")
    return operator, phase, side, path.strip(".") or "0", dtype, str(shape)


def _of_ptdbg(path: Path, run: Run, rows: list[Row], slots: list[Slot]) -> Iterator[str]:
    """Yield differences of statistics, checksums and tensors."""
    directory = path.with_suffix("")
    last = {row[0]: row for row in rows}
    if (run.mode is Mode.TENSOR) is not directory.is_dir():
        yield f"is read as {run.mode}"
    for slot in slots:
        value = slot.value
        if value.kind is Kind.SCALAR:
            continue
        own = str(value.data_name).removesuffix(".npy")
        row = last.pop(own)
        given = row[5] if len(row) == 6 else []
        kept = [None if item in ([], "Nan") else item for item in given]
        if not all(map(_is_same, value.statistics, [*kept, *[None] * 4])):
            yield f"{own}: the statistics are {value.statistics} and not {given}"
        if value.checksum != (row[2] or None):
            yield f"{own}: the checksum is {value.checksum} and not {row[2]}"
        if run.mode is Mode.TENSOR:
            yield from _of_tensor(own, run.tensor(value), np.load(directory / f"{own}.npy"), row, kept)
    yield from (f"{own} is not read" for own, row in last.items() if not row[3].startswith("<class"))


def _of_tensor(own: str, read: Any, held: Any, row: Row, kept: list[Any]) -> Iterator[str]:
    if not np.array_equal(read, held, equal_nan=held.dtype.kind in "fc") or str(list(held.shape)) != str(row[4]):
        yield f"{own}: the tensor is not that of the file beside"
    if held.size and held.dtype.kind == "f" and kept and kept[0] is not None and np.isfinite(held).all():
        told = [held.max(), held.min(), held.mean(dtype=np.float64), np.linalg.norm(held.astype(float))]
        pairs = [pair for pair in zip(kept, told) if pair[0] is not None]
        if not np.allclose(*zip(*pairs), rtol=1e-4, atol=1e-6):
            yield f"{own}: the statistics {kept} are not those of the tensor, {told}"


def _of_hooks(path: Path, run: Run, rows: list[Row], slots: list[Slot]) -> Iterator[str]:
    """Yield differences of values, which are in the rows."""
    tensors = [slot.value for slot in slots if slot.value.data_name]
    tensors.sort(key=lambda value: int(str(value.data_name).rpartition("@")[2]))
    held = [row for row in rows if len(row) == 4]
    if len(tensors) != len(held):
        yield f"{len(tensors)} of {len(held)} tensors are read"
    for value, row in zip(tensors, held):
        if len(row[1]) == math.prod(row[3]):
            if not np.array_equal(run.tensor(value).ravel(), np.array(row[1], np.float32), equal_nan=True):
                yield f"{row[0]}: the values are others"
        elif not np.allclose(value.statistics[:3], row[1][-3:], equal_nan=True):
            yield f"{row[0]}: the statistics are {value.statistics}"


def _of_stacks(run: Run, every: list[Row], is_hooks: bool) -> Iterator[str]:
    """Yield differences of the frames of call stacks."""
    held = sum(map(is_stack, every)) if is_hooks else sum(len(row[1]) for row in every if is_stack(row))
    stacks: dict[str, tuple[str, ...]] = vars(run)["_stacks"]
    read = sum(map(len, stacks.values()))
    if read != held:
        yield f"{read} of {held} frames are read"


def _is_same(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float) and math.isnan(one):
        return math.isnan(two)
    return bool(one == two)


def main(root: Path) -> int:
    """Print the table of all folders, and return 1 if there is a difference."""
    print(f"{'folder':28} {'tool and version':24} {'files':>5} {'rows':>5} {'stacks':>6} {'differences':>11}")
    total = 0
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        checked = check_folder(folder)
        count = len(checked.differences)
        total += count
        numbers = f"{checked.files:5} {checked.rows:5} {checked.stacks:6} {count:11}"
        print(f"{folder.name:28} {checked.title:24} {numbers}")
        for text in checked.differences:
            print(f"    {text}")
    print(f"{total} differences")
    return int(total > 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as given, tarfile.open(DATA / "legacy.tar.xz") as archive:
        archive.extractall(given, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        sys.exit(main(Path(given) / "legacy"))
