"""What every judge must do, as a class of tests to subclass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probe_core.model import Level, Op, Reason, Row, Ruling, Verdict
from probe_core.plugins.protocols import Judge
from probe_core.plugins.specs import JudgeSpec
from probe_core.testing.arrays import EDGES, edge_pairs
from probe_core.testing.pairs import pair_of

_KEYS = (
    "Functional.op.0.forward",
    "Functional.empty.0.forward",
    "Functional.op.0.backward",
    "Module.a.B.forward.0",
)
_SIDES = ("input.0", "output.0")


class JudgeConformance:
    """Tests that any judge passes; set ``spec``."""

    spec: ClassVar[JudgeSpec]

    def judge(self) -> Judge:
        """A fresh judge from the spec's factory."""
        judge: Judge = self.spec.make()
        return judge

    def ops(self) -> Iterator[tuple[Op, list[Row]]]:
        """The rows of calls: of edge pairs with each level, and none."""
        for key in _KEYS:
            yield Op(key), []
            for level in Level:
                verdict = Verdict(level, "label", failed=level is Level.ERROR)
                for _, target, golden in edge_pairs():
                    pairs = [pair_of(target, golden, f"{key}.{side}").pair for side in _SIDES]
                    further = {"other": verdict}
                    yield Op(key), [Row(pair, key, {}, verdict, further=further) for pair in pairs]

    def test_spec_is_complete(self) -> None:
        """A name, a summary and a place among the judges."""
        assert self.spec.name and self.spec.summary and isinstance(self.spec.order, int)

    def test_rulings_are_on_rows(self) -> None:
        """A ruling has the position of a row, a verdict and a reason; rows are left as they are."""
        judge = self.judge()
        for op, rows in self.ops():
            before = list(rows)
            for position, ruling in judge.judge(op, rows).items():
                assert 0 <= position < len(rows), op.key
                assert isinstance(ruling, Ruling) and isinstance(ruling.verdict, Verdict), op.key
                assert isinstance(ruling.reason, Reason), op.key
                assert ruling.further is None or isinstance(ruling.further, Verdict), op.key
            assert rows == before, op.key

    def test_what_agrees_is_no_error(self) -> None:
        """Rows that pass on equal values do not become errors."""
        judge, array = self.judge(), EDGES["plain"]
        for key in _KEYS:
            pairs = [pair_of(array, array.copy(), f"{key}.{side}").pair for side in _SIDES]
            rows = [Row(pair, key, {}, Verdict(Level.PASS, "Yes")) for pair in pairs]
            assert all(one.verdict.level is not Level.ERROR for one in judge.judge(Op(key), rows).values()), (
                key
            )

    def test_same_rulings_twice(self) -> None:
        """A run is judged the same each time."""
        ops = list(self.ops())
        first, second = self.judge(), self.judge()
        assert [dict(first.judge(*op)) for op in ops] == [dict(second.judge(*op)) for op in ops]
