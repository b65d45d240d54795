"""Causes in the results of msprobe: the marked rows of its table, and the nodes of ``-da``."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from faults.cases import Cause

FOREIGN = re.compile(r"/(msprobe|torch)/")
"""In a frame of msprobe or torch, which stand above the frame of the program."""


class Step:
    """A recorded step of the target: the calls, the modules around them and their lines of code."""

    def __init__(self, directory: Path, number: int) -> None:
        self.number = number
        self._calls = json.loads((directory / "dump.json").read_text("utf-8"))["data"].keys()
        self._parents = json.loads((directory / "construct.json").read_text("utf-8"))

    def call(self, row: str) -> str:
        """Return the key of a row's call."""
        parts = row.split(".")
        keys = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((key for key in keys if key in self._calls), row)

    def cause(self, call: str, rows: Iterable[str], message: str, frames: Sequence[str]) -> Cause:
        """Return what is said of a call as a cause."""
        modules: list[str] = []
        parent = self._parents.get(call)
        while parent and parent not in modules:
            modules.append(parent)
            parent = self._parents.get(parent)
        own = (" ".join(frame.split()) for frame in frames if not FOREIGN.search(frame))
        return Cause(call, " ".join(rows), message, tuple(modules), "", next(own, ""), "", self.number)


def marked(table: Path, step: Step, results: set[str]) -> list[Cause]:
    """Return the calls of a table with a row of these results, in the order of their first such rows."""
    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    names: dict[str, list[str]] = {}
    first: dict[str, dict[str, str]] = {}
    frames: dict[str, list[str]] = {}
    for row in rows:
        call = step.call(row["NPU Name"])
        names.setdefault(call, []).append(row["NPU Name"])
        stack = row["NPU_Stack_Info"]
        if call not in frames and stack.startswith("["):
            frames[call] = ast.literal_eval(stack)
        if row["Result"] in results:
            first.setdefault(call, row)
    causes = []
    for call, row in first.items():
        beside = [name for name in names[call] if name != row["NPU Name"]]
        causes.append(step.cause(call, [row["NPU Name"], *beside], row["Err_message"], frames.get(call, ())))
    return causes


def analysed(file: Path, step: Step) -> list[Cause]:
    """Return the nodes in a file of ``-da``, rank after rank."""
    causes = []
    for nodes in json.loads(file.read_text("utf-8")).values():
        for node in nodes:
            rows = [name for part in node["data_info"].values() for name in part]
            frames = node["stack_info"] if isinstance(node["stack_info"], list) else []
            causes.append(step.cause(node["op_name"], rows, "", frames))
    return causes
