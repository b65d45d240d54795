"""Agreement of our recording of a program with msprobe's: the same names and shapes, values up to rounding.

Kernels of two processors round in different places, so numbers are held within a number of roundings that
depends on the dtype and the operation; names, shapes, dtypes, integers, nan and inf are held exactly.

As a script it records a program with both recorders, msprobe living in an environment of its own::

    python tests/against_msprobe.py --msprobe-python ENV/bin/python [CASE SIDE LEVEL TASK]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from probe_pytorch.ptfile import load_pt

from probe_core.errors import UnreadableTensor
from probe_core.store.names import canonicalize

DATA = Path(__file__).parent / "data"
PROGRAMS = DATA / "programs.py"
REASONS = DATA / "differences-recorder.yaml"
REFLECTED = {"__rmul__": "__mul__", "__radd__": "__add__", "__rand__": "__and__", "__ror__": "__or__"}
STATISTICS = ("Max", "Min", "Mean", "Norm")
UNITS = {
    "torch.float64": 2.0**-53,
    "torch.float32": 2.0**-24,
    "torch.float16": 2.0**-11,
    "torch.bfloat16": 2.0**-8,
}
"""The unit roundoff of each dtype: half the distance from 1 to the next larger number."""
ROUNDINGS = 8
"""Roundings by which the numbers of two processors may differ, in units of the largest number of the record."""
SUMMING = {
    "linear": 32, "matmul": 32, "conv2d": 64, "batch_norm": 64, "layer_norm": 32, "cross_entropy": 32,
    "max_pool2d": 64, "flatten": 64, "relu": 64, "gelu": 32, "add_": 64, "Module": 64,
}  # fmt: skip
"""The same for operations that add up many products, in an order of the processor's, or take in such sums."""


@dataclass
class Agreement:
    """The outcome of holding one run against another."""

    msprobe: dict[str, int] = field(default_factory=lambda: {"forward": 0, "backward": 0})
    same: dict[str, int] = field(default_factory=lambda: {"forward": 0, "backward": 0})
    differences: list[tuple[str, str]] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)

    def share(self, phase: str) -> float:
        """The part of msprobe's entries that are the same in ours."""
        return self.same[phase] / self.msprobe[phase] if self.msprobe[phase] else 1.0

    def __add__(self, other: Agreement) -> Agreement:
        msprobe, same = (
            {phase: a[phase] + b[phase] for phase in a}
            for a, b in ((self.msprobe, other.msprobe), (self.same, other.same))
        )
        return Agreement(msprobe, same, self.differences + other.differences, self.extra + other.extra)


def agreement(msprobe: Path, ours: Path) -> Agreement:
    """Hold our ``dump.json`` against msprobe's."""
    theirs, found = (plain(json.loads(path.read_text())["data"]) for path in (msprobe, ours))
    result = Agreement(extra=[key for key in found if key not in theirs])
    unit = 0.0
    for key, record in theirs.items():
        dtypes = [leaf["dtype"] for _, leaf in _leaves(record) if _is_tensor(leaf)]
        unit = max([unit, *(UNITS.get(dtype, 0.0) for dtype in dtypes)])
        phase = "backward" if "backward" in key else "forward"
        result.msprobe[phase] += 1
        problem = "missing"
        if key in found:
            problem = Held(key, record, found[key], (msprobe, ours), unit).problem()
        if problem:
            result.differences.append((key, problem))
        else:
            result.same[phase] += 1
    return result


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Records by name; reflected operators are counted with their plain form, in the order of calls."""
    counts: dict[str, int] = {}
    renamed: dict[str, str] = {}
    result: dict[str, Any] = {}
    for key, record in data.items():
        head, _, phase = key.rpartition(".")
        prefix, _, number = head.rpartition(".")
        scope, _, name = prefix.rpartition(".")
        merged = f"{scope}.{REFLECTED.get(name, name)}"
        if scope == "Tensor" and merged.rpartition(".")[2] in REFLECTED.values() and number.isdigit():
            if phase == "forward":
                renamed[head] = f"{merged}.{counts.setdefault(merged, 0)}"
                counts[merged] += 1
            key = f"{renamed.get(head, head)}.{phase}"
        result[canonicalize(key)] = record
    return result


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and "type" not in value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}.{number}")
    else:
        yield path, value


class Held:
    """Two records of one call, held against each other: numbers within what rounding explains, all else exactly.

    Args:
        key: The name of the record.
        theirs: The record in the fixture.
        ours: Our record.
        files: The two ``dump.json``.
        unit: The coarsest unit roundoff of the run so far: later values in a finer dtype come of it.
    """

    def __init__(self, key: str, theirs: Any, ours: Any, files: tuple[Path, Path], unit: float) -> None:
        self._sides = [
            dict(_leaves({k: v for k, v in record.items() if k != "is_recompute"})) for record in (theirs, ours)
        ]
        self._files = files
        self._unit = unit
        kinds = ("Module",) if key.startswith("Module.") else key.split(".")
        self._roundings = max(SUMMING.get(kind, ROUNDINGS) for kind in kinds)
        extremes = [
            abs(float(leaf[name] or 0))
            for leaf in self._sides[0].values()
            if _is_tensor(leaf)
            for name in ("Max", "Min")
        ]
        self._scale = max((value for value in extremes if math.isfinite(value)), default=0.0)

    def problem(self) -> str:
        """The first difference; an empty text if there is none."""
        first, second = self._sides
        for path in dict.fromkeys([*first, *second]):
            if path not in second or path not in first:
                return f"{path}: {'only in ours' if path in second else 'not in ours'}"
            problem = self._leaf(first[path], second[path])
            if problem:
                return f"{path}: {problem}"
        return ""

    def _leaf(self, theirs: Any, ours: Any) -> str:
        if not _is_tensor(theirs):
            return "" if str(theirs) == str(ours) else f"{ours} for {theirs}"
        if not _is_tensor(ours):
            return f"{ours} for a tensor"
        for name in ("dtype", "shape", "requires_grad", "md5"):
            if name in theirs and theirs[name] != ours.get(name):
                return f"{name} {ours.get(name)} for {theirs[name]}"
        return self._statistics(theirs, ours) or self._data(theirs, ours)

    def _limit(self, dtype: str) -> float:
        """The largest difference that rounding explains; 0 for dtypes without rounding."""
        own = UNITS.get(dtype)
        return 0.0 if own is None else self._roundings * max(own, self._unit) * self._scale

    def _statistics(self, theirs: Any, ours: Any) -> str:
        tolerance = 2e-2 if "16" in theirs["dtype"] else 1e-4  # msprobe computes in the dtype under test
        limit = max(self._limit(theirs["dtype"]), tolerance * 1e-2)
        for name in STATISTICS:
            if theirs.get(name) is not None and not _close(theirs[name], ours.get(name), tolerance, limit):
                return f"{name} {ours.get(name)} for {theirs[name]}"
        return ""

    def _data(self, theirs: Any, ours: Any) -> str:
        if not theirs.get("data_name"):
            return ""
        if not ours.get("data_name"):
            return "no data"
        try:
            first, second = (
                load_pt(file.parent / "dump_tensor_data" / leaf["data_name"])
                for file, leaf in zip(self._files, (theirs, ours))
            )
        except UnreadableTensor as error:
            return str(error)
        if np.array_equal(*(a.reshape(-1).view(np.uint8) for a in map(np.ascontiguousarray, (first, second)))):
            return ""
        if theirs["dtype"] not in UNITS:
            return "data"
        a, b = first.astype(np.float64), second.astype(np.float64)
        exact = ~(np.isfinite(a) & np.isfinite(b))
        if not np.array_equal(a[exact], b[exact], equal_nan=True):
            return "data: nan or inf"
        worst = float(np.max(np.abs(a - b)[~exact], initial=0.0))
        limit = self._limit(theirs["dtype"])
        return "" if worst <= limit else f"data: off by {worst:.3g}, where rounding explains {limit:.3g}"


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, dict) and "shape" in leaf


def _close(theirs: Any, ours: Any, tolerance: float, limit: float) -> bool:
    if ours is None:
        return False
    if isinstance(theirs, float) and not math.isfinite(theirs):
        return str(theirs) == str(float(ours))
    return abs(theirs - ours) <= tolerance * max(abs(theirs), abs(ours)) + limit


def explained(program: str, key: str, problem: str) -> str:
    """The reason that is listed for a difference; an empty text if there is none."""
    for entry in yaml.safe_load(REASONS.read_text()):
        if any(fnmatchcase(f"{program}:{key}", name) for name in entry["records"]) and entry["what"] in problem:
            return str(entry["reason"])
    return ""


def find(run: Path) -> Path:
    """The one ``dump.json`` below ``run``."""
    (path,) = run.rglob("dump.json")
    return path


def record(python: str, recorder: str, out: Path, case: str, side: str, level: str, task: str) -> Path:
    """Record a program with one of the two recorders."""
    extra = json.dumps({"risk_level": "ALL", "store": "files"})
    command = [
        python,
        str(PROGRAMS),
        case,
        side,
        str(out),
        "--level",
        level,
        "--task",
        task,
        "--extra",
        extra,
    ]
    done = subprocess.run(command, env={**os.environ, "RECORDER": recorder}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{recorder}: {done.stderr[-2000:]}")
    return find(out)


def main() -> None:
    """Record live with both and say how far they agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--msprobe-python", required=True)
    parser.add_argument("case", nargs="?", default="mlp_gelu")
    parser.add_argument("side", nargs="?", default="bench")
    parser.add_argument("level", nargs="?", default="L1")
    parser.add_argument("task", nargs="?", default="tensor")
    chosen = parser.parse_args()
    program = (chosen.case, chosen.side, chosen.level, chosen.task)
    with tempfile.TemporaryDirectory() as folder:
        theirs = record(chosen.msprobe_python, "msprobe.pytorch", Path(folder) / "msprobe", *program)
        ours = record(sys.executable, "probe_pytorch", Path(folder) / "ours", *program)
        found = agreement(theirs, ours)
    for phase in ("forward", "backward"):
        print(f"{phase}: {found.same[phase]} of msprobe's {found.msprobe[phase]} entries are the same in ours")
    for key, problem in found.differences:
        print(f"  {key} {problem} [{explained(chosen.case, key, problem) or 'NOT EXPLAINED'}]")
    print(f"  only in ours: {', '.join(found.extra) or 'nothing'}")


if __name__ == "__main__":
    main()
