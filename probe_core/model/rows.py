"""The data of a comparison: pairs, measurements, verdicts and rows.

Records are matched into pairs, pairs are measured, measurements are judged, and the result is a row. Types
with one object per recorded value are named tuples, which are three times as fast to create as frozen
dataclasses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import Enum, IntEnum
from operator import add
from typing import NamedTuple, Union

from probe_core.errors import describe_error
from probe_core.exports import add_alias
from probe_core.model.dtypes import is_foreign_spelling, is_same_dtype
from probe_core.model.values import Kind, Side, Slot

Cell = Union[int, float, bool, str, None]
"""A cell of a table as reporters get it. Floats are finite; nan and inf are texts."""


class Percent(str):
    """A ratio as text in percent, such as ``12.5%``; formats with number formats write the ratio."""

    ratio: float

    def __new__(cls, ratio: float) -> Percent:
        """Return the text for a ratio."""
        percent = super().__new__(cls, f"{ratio * 100}%")
        percent.ratio = ratio
        return percent

    def __getnewargs__(self) -> tuple[float]:  # type: ignore[override]
        return (self.ratio,)


class MatchKind(str, Enum):
    """Ways in which the two sides of a pair were matched.

    REGION marks rows of calls that do not line up in two aligned runs.
    """

    NAME = "name"
    FUZZY = "fuzzy"
    MAPPED = "mapped"
    ALIGNED = "aligned"
    REGION = "region"


class Pair(NamedTuple):
    """A target slot and a golden slot, of which one may be missing."""

    target: Slot | None
    golden: Slot | None
    match_kind: MatchKind = MatchKind.NAME

    @property
    def matched(self) -> bool:
        """Return True if both sides are there."""
        return self.target is not None and self.golden is not None

    @property
    def omission(self) -> str:
        """The reason in ``OMISSIONS`` for which the pair is not to be compared; empty for none."""
        return next((slot.value.omission for slot in self[:2] if slot and slot.value.omission), "")

    @property
    def requires_grad_differs(self) -> bool:
        """Return True if both sides recorded requires_grad and disagree.

        See docs/tables.md#messages; a framework that does not record it agrees with every other.
        """
        if self.target is None or self.golden is None or self.omission:
            return False
        target, golden = self.target.value, self.golden.value
        if target.requires_grad == golden.requires_grad:
            return False
        is_unrecorded = None in (target.requires_grad, golden.requires_grad)
        are_tensors = target.kind is golden.kind is Kind.TENSOR
        return not (is_unrecorded and are_tensors and is_foreign_spelling(target.dtype, golden.dtype))

    @property
    def scalars_differ(self) -> bool:
        """Return True for two scalars of different value; nan equals nan."""
        if self.target is None or self.golden is None or self.omission:
            return False
        target, golden = self.target.value, self.golden.value
        if target.kind is not Kind.SCALAR or golden.kind is not Kind.SCALAR:
            return False
        first, second = target.statistics.max, golden.statistics.max
        if first is None:  # a size or a slice, which has a checksum only
            return target.checksum != golden.checksum
        if isinstance(first, str) and isinstance(second, str):
            return not is_same_dtype(first, second)
        return first != second and not (first != first and second != second)

    @property
    def names_differ(self) -> bool:
        """Return True for two slots with different names."""
        return self.target is not None and self.golden is not None and self.target.name != self.golden.name

    @property
    def slot(self) -> Slot:
        """The target slot, or the golden slot if there is no target."""
        slot = self.target or self.golden
        assert slot is not None
        return slot

    @property
    def name(self) -> str:
        """The name of the row: that of ``slot``."""
        return self.slot.name

    @property
    def side(self) -> Side:
        """The side of ``slot``."""
        return self.slot.side


class Reason(NamedTuple):
    """A reason code (``probe_reporters.Text``) with its detail, behind a verdict or a missing value."""

    code: str
    detail: str = ""


class MetricFailure(Reason):
    """The reason for a missing value whose metric raised an exception.

    Attributes:
        metric: The name of the metric.
        error: The type and the message of the exception.
    """

    metric: str
    error: str

    def __new__(cls, metric: str, error: str) -> MetricFailure:
        """Return the reason with the code ``metric_failed``."""
        reason = super().__new__(cls, "metric_failed", f"{metric} failed: {error}")
        reason.metric, reason.error = metric, error
        return reason

    def __getnewargs__(self) -> tuple[str, str]:
        return (self.metric, self.error)


class Measurement(NamedTuple):
    """The result of a metric in one column: a value, or the reason why there is none."""

    value: float | int | bool | str | None = None
    reason: Reason | None = None

    @classmethod
    def absent(cls, code: str, detail: str = "") -> Measurement:
        """Return a measurement without a value for the reason ``code``."""
        return cls(None, Reason(code, detail))

    @classmethod
    def failed(cls, error: BaseException, metric: str) -> Measurement:
        """Return a measurement without a value because the metric of that name raised ``error``."""
        return cls(None, MetricFailure(metric, describe_error(error)))

    @property
    def number(self) -> float | None:
        """The value as a float; None if there is none or it is a text."""
        if isinstance(self.value, (int, float)):
            return float(self.value)
        return None


Measurements = Mapping[str, Measurement]
"""The measurements of one pair, by ``metric.column``."""


class Level(str, Enum):
    """Severity of a verdict, in ascending order."""

    SKIP = "skip"
    PASS = "pass"
    WARNING = "warning"
    ERROR = "error"


SEVERITIES = {level: severity for severity, level in enumerate(Level)}
"""The levels in ascending order of severity, as numbers."""


class Colour(str, Enum):
    """Colours of highlighted rows; red takes precedence over yellow."""

    RED = "red"
    YELLOW = "yellow"


class Mark(NamedTuple):
    """A highlight: its color and its reasons."""

    colour: Colour
    reasons: tuple[Reason, ...]


class Quantity(IntEnum):
    """The quantities that a distance is measured by."""

    RMS = 0
    UNMASKED_RMS = 1
    MAX = 2
    MIN = 3
    MEAN = 4
    NORM = 5


class Drift(NamedTuple):
    """The distance of two floating-point tensors.

    Attributes:
        difference: Difference of ``quantity``.
        scale: Magnitude of the golden: its root mean square, or the larger magnitude of its extrema.
        noise: Relative distance that rounding in the coarser of both dtypes explains.
        jump: Minimum ratio of an output's relative distance to its inputs' for a report.
        quantity: A number of ``Quantity``.
    """

    difference: float
    scale: float
    noise: float
    jump: float
    quantity: float = Quantity.RMS

    def relative_to(self, scale: float) -> float:
        """Return the difference relative to ``scale``: 0 if there is none, inf if only the scale is 0."""
        if not self.difference:
            return 0.0
        return self.difference / scale if scale else math.inf


class Verdict(NamedTuple):
    """The judgement of a policy on a pair.

    Attributes:
        level: The severity that the summary, the suspects and ``--fail-on`` use.
        label: The text in the table's own column (Yes, No, Warning, Pass …).
        reasons: The evidence.
        failed: True if the row fails by the table's own rule, which the advisor reads.
        drift: The distance of the tensors; None if the pair breaks a rule of the table.
        measured: False if there was nothing to judge.
    """

    level: Level
    label: str
    reasons: tuple[Reason, ...] = ()
    failed: bool = False
    drift: Drift | None = None
    measured: bool = True


class ReplacedVerdict(NamedTuple):
    """A verdict that a judge replaced, with the judge's name and its reason."""

    judge: str
    verdict: Verdict
    reason: Reason


class Ruling(NamedTuple):
    """A judge's decision on a row.

    Attributes:
        verdict: The new verdict of the row.
        reason: The reason for the change.
        further: The verdict that replaces those of all further policies; None keeps them.
    """

    verdict: Verdict
    reason: Reason
    further: Verdict | None = None


class Row(NamedTuple):
    """A line of the result table: a pair, its measurements and its verdict.

    Attributes:
        pair: Both slots.
        op: The key of the op that the row belongs to.
        measurements: The results of the metrics.
        verdict: The verdict of the policy, or of the last judge that changed it.
        notes: Reasons that apply to the pair and do not depend on its measurements.
        mark: The highlight, if any.
        stack: The frames of the call, innermost first; None if the table shows none on this row.
        further: The verdicts of further policies, by the policy's name.
        replaced_verdicts: The verdicts that judges replaced, in the order of the changes.
    """

    pair: Pair
    op: str
    measurements: Measurements
    verdict: Verdict
    notes: tuple[Reason, ...] = ()
    mark: Mark | None = None
    stack: tuple[str, ...] | None = None
    further: Mapping[str, Verdict] = {}
    replaced_verdicts: tuple[ReplacedVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        header: The text in the header row.
        source: A dotted name: ``target.…`` and ``golden.…`` are fields of the two slots, ``row.…`` is derived
            from the row, anything else is ``metric.column`` of a measurement.
        style: The format of its numbers: ``plain``, ``decimals``, ``cosine`` or ``percent``.
    """

    header: str
    source: str
    style: str = "plain"


@dataclass(frozen=True, slots=True)
class Op:
    """The context of an op's rows: its name, modules and rank.

    Attributes:
        key: The name of the op.
        ancestors: The modules around the call, innermost first.
        shifted: True if one run makes this call more often and calls are paired by their numbers: its rows
            may be mispaired, and none is a suspect.
        rank: The rank that the run belongs to.
        by_tensor: True if tensors are measured, False if statistics or checksums of them are.
    """

    key: str
    ancestors: Sequence[str] = ()
    shifted: bool = False
    rank: int = 0
    by_tensor: bool = True


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row at which the runs may have diverged.

    Attributes:
        line: The number of the row in the sheet.
        why: The evidence.
        module: The module that made the call; empty if not recorded.
        where: The line of code that made the call; empty if not recorded.
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
    """The advisor's output: a line of the sheet, the name of its row, and the advice."""

    line: str
    node: str
    text: str


@dataclass(slots=True)
class RowCounts:
    """Numbers of rows by verdict and by match."""

    levels: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    measured: int = 0
    matched: int = 0
    target_only: int = 0
    golden_only: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        levels = {level: count + other.levels[level] for level, count in self.levels.items()}
        counts, other_counts = astuple(self)[1:], astuple(other)[1:]
        return RowCounts(levels, *map(add, counts, other_counts))

    @property
    def rows(self) -> int:
        """The number of rows in the table."""
        return self.matched + self.target_only + self.golden_only


add_alias(Pair, "how", "match_kind")
