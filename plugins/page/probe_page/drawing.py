"""The rows of a page that have pictures: which they are, and their tensors, read from both runs again."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Op, Pair, Row
from probe_core.model.measure import is_numeric
from probe_core.model.report import Report
from probe_core.plugins.protocols import Opened
from probe_page.pictures import picture
from probe_page.rows import Looked

CAUSES, WORST = 8, 16
"""Number of rows of causes, and of the rows that differ most, that have pictures."""
OF_CAUSE, OF_ROW, IN_ALL = 1 << 21, 1 << 18, 1 << 22
"""Number of elements that are looked at: of a row of a cause, of any other, and of all rows."""
LATEST = 4000
"""Number of rows that differ first, among which those of causes are sought."""


class Wanted(NamedTuple):
    """A row that may have a picture: its number, its name, its op, its pair, and what rounding explains."""

    number: int
    name: str
    op: str
    pair: Pair
    noise: float


class Candidates:
    """Rows that differ and whose tensors were recorded: the first ones, and the worst."""

    def __init__(self) -> None:
        self._first: list[Wanted] = []
        self._worst: list[tuple[float, int, Wanted]] = []

    def add(self, first: int, ops: Sequence[Op], rows: Sequence[Row], looked: Looked) -> None:
        """Take in rows, of which the first has the number ``first``."""
        for place, (error, noise) in enumerate(zip(looked.errors, looked.noises)):
            if error is None or error <= (noise or 0.0):
                continue
            pair = rows[place].pair
            if not _have_tensors(pair):
                continue
            wanted = Wanted(first + place, looked.names[place], ops[place].key, pair, noise or 0.0)
            if len(self._first) < LATEST:
                self._first.append(wanted)
            item = (error, -wanted.number, wanted)
            if len(self._worst) < WORST:
                heappush(self._worst, item)
            elif item[:2] > self._worst[0][:2]:
                heapreplace(self._worst, item)

    def chosen(self, report: Report) -> list[tuple[Wanted, int]]:
        """Return the rows that get a picture, with the number of elements to look at.

        Rows of causes come first, in the order of the causes; then the worst.
        """
        causes = report.answer.causes if report.answer is not None else ()
        of_op: dict[str, list[Wanted]] = {}
        for wanted in self._first:
            of_op.setdefault(wanted.op, []).append(wanted)
        shown = [wanted for cause in causes for wanted in of_op.get(cause.op, ())]
        rows = {cause.row for cause in causes}
        first = sorted(shown, key=lambda wanted: wanted.name not in rows)[:CAUSES]
        worst = [wanted for _, _, wanted in sorted(self._worst, reverse=True)]
        known = {wanted.number for wanted in first}
        others = [(wanted, OF_ROW) for wanted in worst if wanted.number not in known]
        return [*((wanted, OF_CAUSE) for wanted in first), *others]


def _have_tensors(pair: Pair) -> bool:
    """Return True if the tensors of both sides were recorded, and have one shape."""
    target, golden, _ = pair
    if target is None or golden is None or target.value.shape != golden.value.shape:
        return False
    sides = (target.value, golden.value)
    return all(
        side.kind is Kind.TENSOR and side.data_name is not None and not side.is_empty for side in sides
    )


def pictures(report: Report, candidates: Candidates) -> dict[int, dict[str, Any]]:
    """Return the pictures of the chosen rows by their numbers; of fewer if tensors cannot be read again."""
    if report.interrupted or report.opened is None:
        return {}
    return dict(_drawn(report.opened, candidates.chosen(report)))


def _drawn(opened: Opened, chosen: Sequence[tuple[Wanted, int]]) -> Iterator[tuple[int, dict[str, Any]]]:
    left = IN_ALL
    for wanted, limit in chosen:
        if left <= 0:
            return
        first, second, _ = wanted.pair
        assert first is not None and second is not None
        try:
            both = opened.target.tensor(first.value), opened.golden.tensor(second.value)
        except UnreadableTensor:
            continue
        if both[0].shape != both[1].shape or not both[0].size or not all(map(is_numeric, both)):
            continue
        limit = min(limit, left)
        left -= min(limit, both[0].size)
        yield wanted.number, picture(np.asarray(both[0]), np.asarray(both[1]), wanted.noise, limit)


def packed(found: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return pictures as a block of a page; no block for none."""
    if not found:
        return []
    text = json.dumps(found, separators=(",", ":"))
    return [base64.b64encode(zlib.compress(text.encode(), 6)).decode()]
