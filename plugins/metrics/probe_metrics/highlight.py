"""Highlighter behind ``-hl``: red and yellow marks of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probe_core.model import Colour, Mark, Mode, Reason, Row, Side
from probe_core.model.columns import convert_to_float
from probe_metrics.statistics import is_number
from probe_metrics.thresholds import load_thresholds


class Highlight:
    """Rules R1 to R4 (red) and Y1 to Y5 (yellow) over the rows of one op (docs/tables.md#highlighting).

    Each output is compared with each input and parameter; a rule that applies to any of these pairs marks the
    output. A red row shows its red reasons only. Rows that only the golden has are never marked.

    The relative error of the maximum is ``|Max diff| / max(0.01, |Bench max|)``, so a golden of 0 is no
    special case; in the tensor table MaxAbsErr takes the place of Max diff. nan or inf as a recorded extremum
    of the target is rule R1. Rules on pairs skip rows in which a number is missing, as for 0-d or empty
    tensors.

    Source: the comparison guide of msprobe 8.3, with the signs of the relative error put right.
    """

    def __init__(self) -> None:
        self._limits: dict[str, Any] = load_thresholds("highlight")

    def mark(self, rows: Sequence[Row]) -> Mapping[int, Mark]:
        """Return the marks of one op's rows, by position in ``rows``."""
        views = [_View(row, self._limits["least_maximum"]) for row in rows]
        sources = [view for view in views if view.usable and view.row.pair.side.is_source]
        marks: dict[int, Mark] = {}
        for position, view in enumerate(views):
            if view.row.pair.target is None:
                continue
            red = list(self._find_red_marks(view, sources))
            reasons = red or list(self._find_yellow_marks(view, sources))
            if reasons:
                codes = tuple(Reason(code) for code in dict.fromkeys(reasons))
                marks[position] = Mark(Colour.RED if red else Colour.YELLOW, codes)
        return marks

    def _find_red_marks(self, view: _View, sources: Sequence[_View]) -> Iterator[str]:
        if view.nonfinite:
            yield "mark_nonfinite"
        elif view.absolute is not None and view.absolute > self._limits["absolute"]:
            yield "mark_absolute"
        if not view.is_output:
            return
        limits = self._limits["ratio"]
        if (
            view.usable
            and view.ratio is not None
            and any(
                source.ratio is not None and source.ratio > limits["input"] and view.ratio < limits["output"]
                for source in sources
            )
        ):
            yield "mark_ratio"
        if view.mode is Mode.STATISTICS and view.usable and view.relative > self._limits["relative"]:
            yield "mark_relative"

    def _find_yellow_marks(self, view: _View, sources: Sequence[_View]) -> Iterator[str]:
        if view.is_output and view.usable:
            pairs = (
                ("mark_magnitude", self._is_order_larger),
                ("mark_ratio_drop", self._has_ratio_drop),
                ("mark_relative_jump", self._has_relative_jump),
                ("mark_cosine_drop", self._has_cosine_drop),
            )
            for code, fires in pairs:
                if any(fires(source, view) for source in sources):
                    yield code
        if view.row.pair.requires_grad_differs:
            yield "mark_requires_grad"

    def _is_order_larger(self, source: _View, output: _View) -> bool:
        limits = self._limits["magnitude"]
        before, after = source.absolute or 0.0, output.absolute or 0.0
        if not (math.inf > before > limits["absolute"] and after > limits["absolute"] and after >= before):
            return False
        return bool(after >= before * 10 ** limits["orders"])

    def _has_ratio_drop(self, source: _View, output: _View) -> bool:
        if source.ratio is None or output.ratio is None:
            return False
        return bool(source.ratio - output.ratio > self._limits["ratio_drop"])

    def _has_relative_jump(self, source: _View, output: _View) -> bool:
        limits = self._limits["relative_jump"]
        return bool(output.relative > limits["output"] and source.relative < limits["input"])

    def _has_cosine_drop(self, source: _View, output: _View) -> bool:
        if source.cosine is None or output.cosine is None:
            return False
        return bool(source.cosine - output.cosine > self._limits["cosine_drop"])


class _View:
    """Numbers of a row that the rules look at."""

    def __init__(self, row: Row, least_maximum: float) -> None:
        self.row = row
        measured = row.measurements
        self.mode = Mode.TENSOR if "cosine.Cosine" in measured else Mode.STATISTICS
        error = measured["max_error.MaxAbsErr" if self.mode is Mode.TENSOR else "statistics.Max diff"].number
        self.absolute = None if error is None else abs(error)
        tensor = self.mode is Mode.TENSOR
        self.ratio = measured["error_ratio.One Thousandth Err Ratio"].number if tensor else None
        self.cosine = measured["cosine.Cosine"].number if tensor else None
        target, golden = row.pair.target, row.pair.golden
        ends = () if target is None else target.value.statistics[:2]
        self.nonfinite = any(is_number(end) and not math.isfinite(convert_to_float(end)) for end in ends)
        values = [slot.value.statistics.max for slot in (target, golden) if slot is not None]
        maxima = [value for value in values if is_number(value)]
        self.usable = self.absolute is not None and len(maxima) == 2
        self.relative = 0.0
        if self.usable and self.absolute is not None:
            self.relative = self.absolute / max(least_maximum, abs(convert_to_float(maxima[1])))

    @property
    def is_output(self) -> bool:
        return self.row.pair.side is Side.OUTPUT
