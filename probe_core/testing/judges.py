"""Conformance tests for judges, as a class to subclass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probe_core.model import Level, Op, Reason, Row, Ruling, Verdict
from probe_core.plugins.protocols import Judge
from probe_core.plugins.specs import JudgeSpec
from probe_core.testing.arrays import EDGES, edge_pairs
from probe_core.testing.pairs import pair_of

_OP_KEYS = ("Functional.op.0.forward", "Functional.empty.0.forward", "Functional.op.0.backward", "Module.a.B.forward.0")
_SIDES = ("input.0", "output.0")


class JudgeConformance:
    """Tests for any judge; set ``spec`` in a subclass."""

    spec: ClassVar[JudgeSpec]

    def judge(self) -> Judge:
        """Return a new judge from the spec's factory."""
        judge: Judge = self.spec.make()
        return judge

    def ops(self) -> Iterator[tuple[Op, list[Row]]]:
        """Yield calls without rows, and calls whose rows are edge cases with each level."""
        for key in _OP_KEYS:
            yield Op(key), []
            for level in Level:
                verdict = Verdict(level, "label", failed=level is Level.ERROR)
                for _, target, golden in edge_pairs():
                    pairs = [pair_of(target, golden, f"{key}.{side}").pair for side in _SIDES]
                    further = {"other": verdict}
                    yield Op(key), [Row(pair, key, {}, verdict, further=further) for pair in pairs]

    def test_spec_is_complete(self) -> None:
        """Check that the spec has a name, a summary and an order."""
        assert self.spec.name and self.spec.summary and isinstance(self.spec.order, int)

    def test_rulings_refer_to_rows(self) -> None:
        """Check that rulings have the positions of rows, a verdict and a reason; rows do not change."""
        judge = self.judge()
        for op, rows in self.ops():
            before = list(rows)
            for position, ruling in judge.judge(op, rows).items():
                assert 0 <= position < len(rows), op.key
                assert isinstance(ruling, Ruling) and isinstance(ruling.verdict, Verdict), op.key
                assert isinstance(ruling.reason, Reason), op.key
                assert ruling.further is None or isinstance(ruling.further, Verdict), op.key
            assert rows == before, op.key

    def test_equal_rows_are_no_error(self) -> None:
        """Check that rows that pass on equal values do not become errors."""
        judge, array = self.judge(), EDGES["plain"]
        for key in _OP_KEYS:
            pairs = [pair_of(array, array.copy(), f"{key}.{side}").pair for side in _SIDES]
            rows = [Row(pair, key, {}, Verdict(Level.PASS, "Yes")) for pair in pairs]
            rulings = judge.judge(Op(key), rows).values()
            assert all(ruling.verdict.level is not Level.ERROR for ruling in rulings), key

    def test_rulings_are_repeatable(self) -> None:
        """Check that the same run gets the same rulings each time."""
        ops = list(self.ops())
        first, second = self.judge(), self.judge()
        assert [dict(first.judge(*op)) for op in ops] == [dict(second.judge(*op)) for op in ops]
