"""How far our recording of a program agrees with the peer's: same names, shapes and values?

As a script it records a program with both recorders, the peer living in an environment of its own::

    python tests/against_peer.py --peer-python ENV/bin/python [CASE SIDE LEVEL TASK]
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
from probe_core.store.names import canonical

DATA = Path(__file__).parent / "data"
PROGRAMS = DATA / "programs.py"
REASONS = DATA / "differences-recorder.yaml"
REFLECTED = {"__rmul__": "__mul__", "__radd__": "__add__", "__rand__": "__and__", "__ror__": "__or__"}
STATISTICS = ("Max", "Min", "Mean", "Norm")


@dataclass
class Agreement:
    """What came of holding one run against another."""

    peer: dict[str, int] = field(default_factory=lambda: {"forward": 0, "backward": 0})
    same: dict[str, int] = field(default_factory=lambda: {"forward": 0, "backward": 0})
    differences: list[tuple[str, str]] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)

    def share(self, phase: str) -> float:
        """The part of the peer's entries that are the same in ours."""
        return self.same[phase] / self.peer[phase] if self.peer[phase] else 1.0

    def __add__(self, other: Agreement) -> Agreement:
        peer, same = (
            {phase: a[phase] + b[phase] for phase in a}
            for a, b in ((self.peer, other.peer), (self.same, other.same))
        )
        return Agreement(peer, same, self.differences + other.differences, self.extra + other.extra)


def agreement(peer: Path, ours: Path) -> Agreement:
    """Hold our ``dump.json`` against the peer's."""
    theirs, found = (plain(json.loads(path.read_text())["data"]) for path in (peer, ours))
    result = Agreement(extra=[key for key in found if key not in theirs])
    for key, record in theirs.items():
        phase = "backward" if "backward" in key else "forward"
        result.peer[phase] += 1
        problem = "missing"
        if key in found:
            problem = _compare(record, found[key], peer, ours)
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
        result[canonical(key)] = record
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


def _compare(theirs: Any, ours: Any, peer_file: Path, our_file: Path) -> str:
    first, second = (
        dict(_leaves({k: v for k, v in record.items() if k != "is_recompute"})) for record in (theirs, ours)
    )
    for path in dict.fromkeys([*first, *second]):
        if path not in second or path not in first:
            return f"{path}: {'only in ours' if path in second else 'not in ours'}"
        problem = _compare_leaf(first[path], second[path], peer_file, our_file)
        if problem:
            return f"{path}: {problem}"
    return ""


def _compare_leaf(theirs: Any, ours: Any, peer_file: Path, our_file: Path) -> str:
    if not (isinstance(theirs, dict) and "shape" in theirs):
        return "" if str(theirs) == str(ours) else f"{ours} for {theirs}"
    if not (isinstance(ours, dict) and "shape" in ours):
        return f"{ours} for a tensor"
    for name in ("dtype", "shape", "requires_grad", "md5"):
        if name in theirs and theirs[name] != ours.get(name):
            return f"{name} {ours.get(name)} for {theirs[name]}"
    tolerance = 2e-2 if "16" in theirs["dtype"] else 1e-4  # the peer computes in the dtype under test
    for name in STATISTICS:
        if theirs.get(name) is not None and not _close(theirs[name], ours.get(name), tolerance):
            return f"{name} {ours.get(name)} for {theirs[name]}"
    return _compare_data(theirs, ours, peer_file, our_file)


def _compare_data(theirs: Any, ours: Any, peer_file: Path, our_file: Path) -> str:
    if not theirs.get("data_name"):
        return ""
    if not ours.get("data_name"):
        return "no data"
    try:
        arrays = [
            load_pt(file.parent / "dump_tensor_data" / leaf["data_name"])
            for file, leaf in ((peer_file, theirs), (our_file, ours))
        ]
    except UnreadableTensor as error:
        return str(error)
    return (
        ""
        if np.array_equal(*(a.reshape(-1).view(np.uint8) for a in map(np.ascontiguousarray, arrays)))
        else "data"
    )


def _close(theirs: Any, ours: Any, tolerance: float) -> bool:
    if ours is None:
        return False
    if isinstance(theirs, float) and not math.isfinite(theirs):
        return str(theirs) == str(float(ours))
    return abs(theirs - ours) <= tolerance * max(abs(theirs), abs(ours)) + tolerance * 1e-2


def explained(program: str, key: str, problem: str) -> str:
    """The reason that is listed for a difference; an empty text if there is none."""
    for entry in yaml.safe_load(REASONS.read_text()):
        if (
            any(fnmatchcase(f"{program}:{key}", name) for name in entry["records"])
            and entry["what"] in problem
        ):
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("case", nargs="?", default="mlp_gelu")
    parser.add_argument("side", nargs="?", default="bench")
    parser.add_argument("level", nargs="?", default="L1")
    parser.add_argument("task", nargs="?", default="tensor")
    chosen = parser.parse_args()
    program = (chosen.case, chosen.side, chosen.level, chosen.task)
    with tempfile.TemporaryDirectory() as folder:
        theirs = record(chosen.peer_python, "msprobe.pytorch", Path(folder) / "peer", *program)
        ours = record(sys.executable, "probe_pytorch", Path(folder) / "ours", *program)
        found = agreement(theirs, ours)
    for phase in ("forward", "backward"):
        print(f"{phase}: {found.same[phase]} of the peer's {found.peer[phase]} entries are the same in ours")
    for key, problem in found.differences:
        print(f"  {key} {problem} [{explained(chosen.case, key, problem) or 'NOT EXPLAINED'}]")
    print(f"  only in ours: {', '.join(found.extra) or 'nothing'}")


if __name__ == "__main__":
    main()
