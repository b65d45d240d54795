"""Choice of the rows of a page that get pictures, whose tensors are read again from both runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Op, Pair, Row
from probe_core.model.measure import is_numeric
from probe_core.model.report import Report
from probe_core.plugins.protocols import OpenComparison
from probe_page.pictures import draw_picture
from probe_page.rows import RowFacts

MAX_CAUSE_PICTURES, MAX_WORST_PICTURES = 8, 16
"""Largest number of rows of causes with a picture, and of the rows that differ most."""
MAX_CAUSE_ELEMENTS, MAX_ROW_ELEMENTS, MAX_TOTAL_ELEMENTS = 1 << 21, 1 << 18, 1 << 22
"""Largest number of elements that are drawn: of a row of a cause, of any other row, and of all rows together."""
MAX_FIRST_CANDIDATES = 4000
"""Number of the first rows that differ, in which the rows of causes are searched."""


class PictureCandidate(NamedTuple):
    """A row that may get a picture.

    Attributes:
        number: The number of the row.
        name: The name of the row.
        op: The name of its op.
        pair: Its pair.
        noise: The relative difference that rounding explains.
    """

    number: int
    name: str
    op: str
    pair: Pair
    noise: float


class CandidateCollector:
    """A collector of rows that differ and whose tensors were recorded: the first rows and the worst rows."""

    def __init__(self) -> None:
        self._first: list[PictureCandidate] = []
        self._worst: list[tuple[float, int, PictureCandidate]] = []

    def add(self, first: int, ops: Sequence[Op], rows: Sequence[Row], row_facts: RowFacts) -> None:
        """Add rows that differ.

        Args:
            first: The number of the first row.
            ops: The op of each row.
            rows: The rows.
            row_facts: The names, errors and noises of the rows.
        """
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
        """Return the rows that get a picture, each with the number of elements to draw.

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
    """Return True if the tensors of both sides were recorded and have the same shape."""
    target, golden, _ = pair
    if target is None or golden is None or target.value.shape != golden.value.shape:
        return False
    sides = (target.value, golden.value)
    return all(side.kind is Kind.TENSOR and side.data_name is not None and not side.is_empty for side in sides)


def draw_pictures(report: Report, opened: OpenComparison, candidates: CandidateCollector) -> dict[int, dict[str, Any]]:
    """Return the pictures of the selected rows by row number; rows whose tensors cannot be read are left out."""
    return {} if report.interrupted else dict(_draw_candidates(opened, candidates.select(report)))


def _draw_candidates(
    opened: OpenComparison, selected: Sequence[tuple[PictureCandidate, int]]
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
