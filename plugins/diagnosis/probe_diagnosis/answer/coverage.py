"""Count of the recorded values that were compared, and of the others by the reason why they were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from probe_core.errors import counted
from probe_core.model import How, Kind, Level, Row
from probe_core.model.answers import Coverage
from probe_core.model.dtypes import kind
from probe_core.model.messages import REASONS, reasons_of
from probe_diagnosis.difference.facts import SAME, UNJUDGED, Apart
from probe_diagnosis.judges.uninitialised import NOT_COMPUTED

TARGET_ONLY, GOLDEN_ONLY, SHIFTED = "target_only", "golden_only", "shifted"
REGION = "region"
UNINITIALISED, EMPTY, NOT_RECORDED, ONE_NONE = "uninitialised", "empty", "not_recorded", "one_none"
LEFT_OUT = "left_out"

WORDS = {
    TARGET_ONLY: "recorded in the target only",
    GOLDEN_ONLY: "recorded in the golden only",
    SHIFTED: "in calls that one run makes more often, so that they may be paired wrongly",
    UNINITIALISED: "of uninitialised memory, which holds nothing",
    EMPTY: "without elements",
    REGION: "in calls that do not line up, so that they may be paired wrongly",
    ONE_NONE: "that one of the runs recorded as None",
    LEFT_OUT: "that a judge left out",
    NOT_RECORDED: "with neither tensor, checksum nor statistics on record in both runs",
    "unreadable": "whose tensor file is missing or cannot be read",
    "no_target_file": "without a tensor file in the target",
    "no_golden_file": "without a tensor file in the golden",
    "unreadable_data": "whose data is no numbers",
    "metric_failed": "on which a metric failed",
}
"""Reasons for which a value was not compared, as they follow a number of values."""

HARMLESS = frozenset({UNINITIALISED, EMPTY})
"""Reasons that leave nothing to compare."""

NAMED = frozenset({NOT_RECORDED, LEFT_OUT})
"""Reasons that an agreement has to name: a judge left the value out, or neither run has data of it."""

WITHOUT_TENSOR = frozenset({"unreadable", "no_target_file", "no_golden_file"})
"""Reasons of values whose statistics may be compared all the same."""

ONE_SIDED = frozenset({TARGET_ONLY, GOLDEN_ONLY, ONE_NONE, REGION})
"""Reasons of values that only one run recorded."""


@dataclass(slots=True)
class Tally:
    """Counts of values, row by row.

    Attributes:
        both: Number of values that both runs recorded.
        compared: Number of these that were compared.
        floats: For the target and the golden, the number of its tensors of floating point.
        floats_compared: For the target and the golden, the number of those that were compared.
        lacking: Number of values that were not compared, by the code of the reason.
        first: The name of the first such value, by the code of the reason.
        by_statistics: Number of values without a readable tensor file that were compared by their statistics,
            by the code of the reason.
        failing_at: The distance of each tensor whose verdict in the table is an error, though it agrees
            within rounding, by the name of its row.
        stood_for: For the target and the golden, the number of tensors in ``floats`` of calls that only that
            run made, and that compute what other calls of the other run do: what they leave was compared.
        equal: Number of values that were compared and are the same to the bit.
        tensors: Number of tensors with elements, uninitialised memory aside; a pair counts once.
        tensors_compared: Number of those that were compared.
    """

    both: int = 0
    compared: int = 0
    floats: list[int] = field(default_factory=lambda: [0, 0])
    floats_compared: list[int] = field(default_factory=lambda: [0, 0])
    lacking: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    by_statistics: Counter[str] = field(default_factory=Counter)
    failing_at: dict[str, float] = field(default_factory=dict)
    stood_for: list[int] = field(default_factory=lambda: [0, 0])
    equal: int = 0
    tensors: int = 0
    tensors_compared: int = 0

    def add(self, row: Row, value: Apart, *, shifted: bool) -> None:
        """Count a row, whose values are ``value`` apart."""
        target, golden = row.pair.target, row.pair.golden
        verdict = row.verdict
        is_tensor = value.by and not value.is_scalar and value.state != UNJUDGED  # as nearly all are
        if is_tensor and verdict.measured and not (shifted or row.was):
            assert target is not None and golden is not None
            self.both += 1
            self.compared += 1
            self.equal += value.is_equal
            self.tensors += 1
            self.tensors_compared += 1
            if verdict.level is Level.ERROR and value.state == SAME and not value.masked:
                self.failing_at[value.row] = value.distance
            for number, dtype in enumerate((target.value.dtype, golden.value.dtype)):
                if kind(dtype) == "float":
                    self.floats[number] += 1
                    self.floats_compared[number] += 1
            return
        kinds = [slot.value.kind for slot in (target, golden) if slot is not None]
        if kinds.count(Kind.NULL) == len(kinds):
            return
        code = _reason(row, value, shifted)
        if code:
            self.lacking[code] += 1
            self.first.setdefault(code, row.pair.name)
            if code in WITHOUT_TENSOR and value.by == "statistics" and value.state != UNJUDGED:
                self.by_statistics[code] += 1
        else:
            self.compared += 1
            self.equal += value.is_equal
            if verdict.level is Level.ERROR and value.state == SAME and not (value.is_scalar or value.masked):
                self.failing_at[value.row] = value.distance
        self.both += len(kinds) == 2
        if code in HARMLESS or Kind.TENSOR not in kinds:
            return
        self.tensors += 1
        self.tensors_compared += not code
        for number, slot in enumerate((target, golden)):
            if slot is not None and slot.value.kind is Kind.TENSOR and kind(slot.value.dtype) == "float":
                self.floats[number] += 1
                self.floats_compared[number] += not code

    def excuse(self, rows: Iterable[str]) -> None:
        """Forget rows whose verdict in the table is an error, though they agree."""
        for row in rows:
            self.failing_at.pop(row, None)

    @property
    def share(self) -> float:
        """The share of the target's floating-point tensors that was compared; of all values without any."""
        if self.floats[0]:
            return self.floats_compared[0] / self.floats[0]
        of_target = self.both + self.lacking[TARGET_ONLY]
        return self.compared / of_target if of_target else 0.0

    @property
    def least_share(self) -> float:
        """The smaller share of both runs."""
        return min(self.share, self.share_of_golden)

    @property
    def share_of_golden(self) -> float:
        """The share of the golden's floating-point tensors that was compared; of the target without any."""
        return self.floats_compared[1] / self.floats[1] if self.floats[1] else self.share

    @property
    def least_beside(self) -> float:
        """The smaller share of both runs, without calls that stand for others."""
        whole = [count - held for count, held in zip(self.floats, self.stood_for)]
        shares = [part / count for part, count in zip(self.floats_compared, whole) if count]
        return min(shares) if len(shares) == len(whole) else self.least_share

    @property
    def unexcused(self) -> int:
        """Number of values that both runs recorded and that were not compared, without an excuse."""
        return sum(n for code, n in self.lacking.items() if code not in ONE_SIDED | HARMLESS | NAMED)

    def coverage(self) -> Coverage:
        """Return the counts as part of an answer."""
        alone = self.lacking[TARGET_ONLY] + self.lacking[GOLDEN_ONLY]
        return Coverage(self.both + alone, self.compared, dict(sorted(self.lacking.items())), self.equal)

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each reason why values were not compared, the most frequent first."""
        return tuple(
            f"{counted(count, 'value')} {words_of(code)}{self._by_statistics(code, count)}; "
            f"the first is {self.first[code]}"
            for code, count in self.lacking.most_common()
        )

    def _by_statistics(self, code: str, count: int) -> str:
        """Return an addition to a sentence: how many of the values have statistics on record."""
        some = self.by_statistics[code]
        if not some:
            return ""
        if some == count:
            return f" (only {'their' if count > 1 else 'its'} statistics are on record)"
        return f" (only statistics of {some:,} of them are on record)"

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Tally:
        """Return the counts that ``plain`` returned."""
        counters = {name: Counter(plain[name]) for name in ("lacking", "by_statistics")}
        return cls(**{**plain, **counters})


def words_of(code: str) -> str:
    """Return the words for a reason, as they follow a number of values."""
    return WORDS.get(code) or f"not compared ({code.replace('_', ' ')})"


def _reason(row: Row, value: Apart, shifted: bool) -> str:
    """Return the code of the reason why a row was not compared; empty if it was."""
    target, golden = row.pair.target, row.pair.golden
    if golden is None:
        return TARGET_ONLY
    if target is None:
        return GOLDEN_ONLY
    if (target.value.kind is Kind.NULL) != (golden.value.kind is Kind.NULL):
        return ONE_NONE
    if shifted:
        return SHIFTED
    if row.was and any(changed.reason == NOT_COMPUTED for changed in row.was):
        return UNINITIALISED
    if row.was and row.verdict.level is Level.SKIP and row.pair.how is not How.REGION:
        return LEFT_OUT
    if value.state == UNJUDGED:
        if target.value.is_empty and golden.value.is_empty:
            return EMPTY
        return REGION if row.pair.how is How.REGION else NOT_RECORDED
    if not row.verdict.measured:
        if value.by == "statistics" and not (target.value.data_name or golden.value.data_name):
            return ""  # recorders store no tensor of such a value
        codes = [reason.code for reason in reasons_of(row)]
        return next(
            (code for code in codes if code in WORDS), next(iter(set(codes) & set(REASONS)), NOT_RECORDED)
        )
    return ""
