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
from probe_page.pictures import draw_picture
from probe_page.rows import RowFacts

MAX_CAUSE_PICTURES, MAX_WORST_PICTURES = 8, 16
"""Number of rows of causes, and of the rows that differ most, that have pictures."""
MAX_CAUSE_ELEMENTS, MAX_ROW_ELEMENTS, MAX_TOTAL_ELEMENTS = 1 << 21, 1 << 18, 1 << 22
"""Number of elements that are looked at: of a row of a cause, of any other, and of all rows."""
MAX_FIRST_CANDIDATES = 4000
"""Number of rows that differ first, among which those of causes are sought."""


class PictureCandidate(NamedTuple):
    """A row that may have a picture: its number, its name, its op, its pair, and what rounding explains."""

    number: int
    name: str
    op: str
    pair: Pair
    noise: float


class Candidates:
    """Rows that differ and whose tensors were recorded: the first ones, and the worst."""

    def __init__(self) -> None:
        self._first: list[PictureCandidate] = []
        self._worst: list[tuple[float, int, PictureCandidate]] = []

    def add(self, first: int, ops: Sequence[Op], rows: Sequence[Row], row_facts: RowFacts) -> None:
        """Take in rows, of which the first has the number ``first``."""
        for place, (error, noise) in enumerate(zip(row_facts.errors, row_facts.noises)):
            if error is None or error <= (noise or 0.0):
                continue
            pair = rows[place].pair
            if not _have_tensors(pair):
                continue
            candidate = PictureCandidate(first + place, row_facts.names[place], ops[place].key, pair, noise or 0.0)
            if len(self._first) < MAX_FIRST_CANDIDATES:
                self._first.append(candidate)
            item = (error, -candidate.number, candidate)
            if len(self._worst) < MAX_WORST_PICTURES:
                heappush(self._worst, item)
            elif item[:2] > self._worst[0][:2]:
                heapreplace(self._worst, item)

    def select(self, report: Report) -> list[tuple[PictureCandidate, int]]:
        """Return the rows that get a picture, with the number of elements to look at.

        Rows of causes come first, in the order of the causes; then the worst.
        """
        causes = report.answer.causes if report.answer is not None else ()
        candidates_by_op: dict[str, list[PictureCandidate]] = {}
        for candidate in self._first:
            candidates_by_op.setdefault(candidate.op, []).append(candidate)
        shown = [candidate for cause in causes for candidate in candidates_by_op.get(cause.op, ())]
        rows = {cause.row for cause in causes}
        first = sorted(shown, key=lambda candidate: candidate.name not in rows)[:MAX_CAUSE_PICTURES]
        worst = [candidate for _, _, candidate in sorted(self._worst, reverse=True)]
        cause_numbers = {candidate.number for candidate in first}
        others = [(candidate, MAX_ROW_ELEMENTS) for candidate in worst if candidate.number not in cause_numbers]
        return [*((candidate, MAX_CAUSE_ELEMENTS) for candidate in first), *others]


def _have_tensors(pair: Pair) -> bool:
    """Return True if the tensors of both sides were recorded, and have one shape."""
    target, golden, _ = pair
    if target is None or golden is None or target.value.shape != golden.value.shape:
        return False
    sides = (target.value, golden.value)
    return all(side.kind is Kind.TENSOR and side.data_name is not None and not side.is_empty for side in sides)


def draw_pictures(report: Report, opened: Opened, candidates: Candidates) -> dict[int, dict[str, Any]]:
    """Return the pictures of the chosen rows by their numbers; of fewer if tensors cannot be read again."""
    return {} if report.interrupted else dict(_draw_candidates(opened, candidates.select(report)))


def _draw_candidates(
    opened: Opened, selected: Sequence[tuple[PictureCandidate, int]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    remaining = MAX_TOTAL_ELEMENTS
    for candidate, limit in selected:
        if remaining <= 0:
            return
        first, second, _ = candidate.pair
        assert first is not None and second is not None
        try:
            tensors = opened.target.tensor(first.value), opened.golden.tensor(second.value)
        except UnreadableTensor:
            continue
        if tensors[0].shape != tensors[1].shape or not tensors[0].size or not all(map(is_numeric, tensors)):
            continue
        limit = min(limit, remaining)
        remaining -= min(limit, tensors[0].size)
        yield candidate.number, draw_picture(np.asarray(tensors[0]), np.asarray(tensors[1]), candidate.noise, limit)


def compress_pictures(row_pictures: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return pictures as a block of a page; no block for none."""
    if not row_pictures:
        return []
    text = json.dumps(row_pictures, separators=(",", ":"))
    return [base64.b64encode(zlib.compress(text.encode(), 6)).decode()]
