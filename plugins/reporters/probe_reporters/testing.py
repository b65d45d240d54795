"""Conformance tests for highlighters, as a class to subclass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probe_core.model import Level, Mark, Reason, Row, Verdict
from probe_core.testing import EDGES, edge_pairs, pair_of
from probe_core.testing.policies import MeasuredCases
from probe_reporters.protocols import Highlighter
from probe_reporters.specs import HighlightSpec

_SIDES = ("input.0", "input.1", "output.0")


class HighlighterConformance(MeasuredCases):
    """Tests for any highlighter; set ``spec``, and set ``metrics`` to the metrics that the highlighter reads."""

    spec: ClassVar[HighlightSpec]

    def highlighter(self) -> Highlighter:
        """Return a new highlighter from the spec's factory."""
        highlighter: Highlighter = self.spec.make()
        return highlighter

    def ops(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield calls whose rows are edge cases, and calls without rows."""
        passed = Verdict(Level.PASS, "Yes")
        rows = [Row(pair.pair, "op", measured, passed) for _, pair, measured in self.cases()]
        yield "all", rows
        yield "none", []
        for name, target, golden in edge_pairs():
            pairs = [pair_of(target, golden, f"Functional.op.0.forward.{side}") for side in _SIDES]
            yield name, [Row(pair.pair, "op", self.measure(pair), passed) for pair in pairs]

    def test_spec_lists_its_metrics(self) -> None:
        """Check for a name, a summary, and the spec of at least one metric."""
        assert self.spec.name and self.spec.summary
        assert not self.spec.metrics or {metric.name for metric in self.metrics} & set(self.spec.metrics)

    def test_marks_refer_to_rows(self) -> None:
        """Check that marks have the positions of rows, a colour and reasons."""
        for name, rows in self.ops():
            for position, mark in self.highlighter().mark(rows).items():
                assert 0 <= position < len(rows), name
                assert isinstance(mark, Mark), name
                assert all(isinstance(reason, Reason) for reason in mark.reasons), name

    def test_equal_tensors_are_not_marked(self) -> None:
        """Check that calls with equal and finite tensors are not marked."""
        array = EDGES["plain"]
        pairs = [pair_of(array, array.copy(), f"Functional.op.0.forward.{side}") for side in _SIDES]
        rows = [Row(pair.pair, "op", self.measure(pair), Verdict(Level.PASS, "Yes")) for pair in pairs]
        assert not self.highlighter().mark(rows)

    def test_marks_are_repeatable(self) -> None:
        """Check that marks do not depend on earlier calls."""
        highlighter = self.highlighter()
        ops = [rows for _, rows in self.ops()]
        first = [dict(highlighter.mark(rows)) for rows in ops]
        assert first == [dict(highlighter.mark(rows)) for rows in reversed(ops)][::-1]
