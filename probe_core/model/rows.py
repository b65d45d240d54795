"""What a comparison makes of values: pairs, measurements, verdicts and rows.

Records are matched into pairs, pairs are measured, measurements are judged, and the outcome is a row. What
there is one of for each value is a named tuple, which is made three times as fast as a frozen dataclass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Union

from probe_core.errors import said
from probe_core.model.dtypes import foreign, same
from probe_core.model.values import Kind, Side, Slot

Cell = Union[int, float, bool, str, None]
"""What a reporter writes into one cell. A float is finite; nan and inf arrive as text."""


class How(str, Enum):
    """How the two sides of a pair came together; REGION: they stand where two aligned runs do not line up."""

    NAME = "name"
    FUZZY = "fuzzy"
    MAPPED = "mapped"
    ALIGNED = "aligned"
    REGION = "region"


class Pair(NamedTuple):
    """A target slot and a golden slot; one side may be missing."""

    target: Slot | None
    golden: Slot | None
    how: How = How.NAME

    @property
    def matched(self) -> bool:
        """True when both sides are there."""
        return self.target is not None and self.golden is not None

    @property
    def requires_grad_differs(self) -> bool:
        """True where the sides say otherwise of it; a framework that notes none is not heard (D2)."""
        if self.target is None or self.golden is None:
            return False
        ours, theirs = self.target.value, self.golden.value
        if ours.requires_grad == theirs.requires_grad:
            return False
        is_untold = None in (ours.requires_grad, theirs.requires_grad)
        are_tensors = ours.kind is theirs.kind is Kind.TENSOR
        return not (is_untold and are_tensors and foreign(ours.dtype, theirs.dtype))

    @property
    def scalars_differ(self) -> bool:
        """True for two scalars of different value; nan equals nan."""
        if self.target is None or self.golden is None:
            return False
        ours, theirs = self.target.value, self.golden.value
        if ours.kind is not Kind.SCALAR or theirs.kind is not Kind.SCALAR:
            return False
        first, second = ours.statistics.max, theirs.statistics.max
        if first is None:  # a size or a slice, told by its checksum
            return ours.checksum != theirs.checksum
        if isinstance(first, str) and isinstance(second, str):
            return not same(first, second)
        return first != second and not (first != first and second != second)

    @property
    def name(self) -> str:
        """The name a person knows the pair by: the target's, or the golden's if it stands alone."""
        slot = self.target or self.golden
        assert slot is not None
        return slot.name

    @property
    def side(self) -> Side:
        """The side of the target slot, or of the golden slot if it stands alone."""
        slot = self.target or self.golden
        assert slot is not None
        return slot.side


class Reason(NamedTuple):
    """Why a value is absent or a verdict is what it is: a code of ``messages.REASONS`` and its detail."""

    code: str
    detail: str = ""


class Measurement(NamedTuple):
    """What a metric says of a pair in one column: a number, or a reason why there is none."""

    value: float | int | bool | str | None = None
    reason: Reason | None = None

    @classmethod
    def absent(cls, code: str, detail: str = "") -> Measurement:
        """No number, because of the reason ``code``."""
        return cls(None, Reason(code, detail))

    @classmethod
    def failed(cls, error: BaseException) -> Measurement:
        """No number, because the metric raised ``error``."""
        return cls.absent("metric_failed", said(error))

    @property
    def number(self) -> float | None:
        """The value as a float, or None where there is none."""
        if isinstance(self.value, (int, float)):
            return float(self.value)
        return None


Measurements = Mapping[str, Measurement]
"""Measurements of one pair by ``metric.column``."""


class Level(str, Enum):
    """How grave a verdict is, from harmless to grave."""

    SKIP = "skip"
    PASS = "pass"
    WARNING = "warning"
    ERROR = "error"


GRAVITY = {level: rank for rank, level in enumerate(Level)}


class Colour(str, Enum):
    """The mark of a highlighted row; red beats yellow."""

    RED = "red"
    YELLOW = "yellow"


class Mark(NamedTuple):
    """A highlight: its colour and why."""

    colour: Colour
    reasons: tuple[Reason, ...]


class Drift(NamedTuple):
    """How far two floating-point tensors are apart, where no rule of a table is broken.

    Attributes:
        difference: Root mean square of the difference.
        scale: Root mean square of the golden.
        noise: Relative distance that rounding in the coarser of both dtypes explains.
        jump: How many times larger than an input's an output's relative distance is to be noted.
    """

    difference: float
    scale: float
    noise: float
    jump: float

    def relative_to(self, scale: float) -> float:
        """The difference relative to ``scale``; 0 where there is none, inf where only the scale is 0."""
        if not self.difference:
            return 0.0
        return self.difference / scale if scale else math.inf


class Verdict(NamedTuple):
    """What a policy makes of a pair's measurements.

    ``label`` is the text of the table's own column (Yes, No, Warning, Pass …); ``level`` is what
    the summary, the suspects and ``--fail-on`` go by; ``failed`` is what the advisor goes by: the
    rows that fail by the table's own rule. ``reasons`` carry the evidence, ``drift`` what a
    comparison without failures looks at. ``measured`` is False where there was nothing to judge by.
    """

    level: Level
    label: str
    reasons: tuple[Reason, ...] = ()
    failed: bool = False
    drift: Drift | None = None
    measured: bool = True


class Changed(NamedTuple):
    """A verdict that a judge changed: which judge, the verdict before, and why."""

    judge: str
    verdict: Verdict
    reason: Reason


class Ruling(NamedTuple):
    """A judge's decision on a row.

    Attributes:
        verdict: The row's verdict from now on.
        reason: Why.
        further: The verdict that takes the place of those of all further policies; None leaves them.
    """

    verdict: Verdict
    reason: Reason
    further: Verdict | None = None


class Row(NamedTuple):
    """One line of the result: a pair, what was measured, and what it means.

    Attributes:
        pair: Both slots.
        op: The key of the op that the row belongs to.
        measurements: What the metrics say.
        verdict: What the policy, and after it the judges, make of them.
        notes: What is to be said of the pair whatever was measured.
        mark: The highlight, if any.
        stack: The frames of the call, innermost first; None where the table shows none.
        further: The verdicts of further policies, by the policy's name.
        was: The verdicts that judges changed, in the order of the changes.
    """

    pair: Pair
    op: str
    measurements: Measurements
    verdict: Verdict
    notes: tuple[Reason, ...] = ()
    mark: Mark | None = None
    stack: tuple[str, ...] | None = None
    further: Mapping[str, Verdict] = {}
    was: tuple[Changed, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its header, where its cells come from, and how a number is written.

    ``source`` is a dotted name: ``target.…`` and ``golden.…`` are fields of the two slots, ``row.…`` is
    worked out of the row, anything else is ``metric.column`` of a measurement.
    """

    header: str
    source: str
    style: str = "plain"


@dataclass(frozen=True, slots=True)
class Op:
    """What is known of an op besides its rows.

    Attributes:
        key: Its name.
        ancestors: The modules around it, innermost first.
        shifted: True where the two runs make this call a different number of times and pairs go
            by the number of the call: then rows may be mispaired, and none is a suspect.
        rank: The number of the rank whose run it is of.
    """

    key: str
    ancestors: Sequence[str] = ()
    shifted: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row that may be where the runs part.

    ``line`` is its number in the sheet, ``why`` the evidence, ``module`` the module that made the
    call and ``where`` the line of code that did; both are empty where they were not recorded.
    """

    op: str
    row: str
    side: Side
    line: str
    level: Level
    why: str
    module: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to look at next: where (sheet line), which row, and the text."""

    line: str
    node: str
    text: str


@dataclass(slots=True)
class Counts:
    """How many rows ended how."""

    levels: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    measured: int = 0
    matched: int = 0
    target_only: int = 0
    golden_only: int = 0

    @property
    def rows(self) -> int:
        """All rows of the table."""
        return self.matched + self.target_only + self.golden_only
