"""Facts of a row that the table's cells do not hold."""

from __future__ import annotations

import math
from typing import NamedTuple

from probe_core.model import Cell, Level, Measurements, Row, Verdict

POLICY = "first_difference"
"""Name of the further verdict that says how far a row is from agreeing within rounding."""
OWN = ("#row", "#op", "#state", "#error", "#noise", "#why", "#name")
"""Columns that a page adds before those of the table: the row's number, the number of its op, level and match
in one number, the relative distance, the distance that rounding explains, the evidence, and the row's name
without its op's."""
DIFFERS = "differs"
"""Text in place of a distance where values differ in a way that has no size."""
LEVELS = ("skip", "pass", "drift", "warning", "error")
"""Levels of rows, in ascending order: those of the table's verdict, and ``drift`` for a row that passes by it
although it differs by more than rounding explains."""
SKIP, PASS, DRIFT = 0, 1, 2
_NUMBERS = {level: LEVELS.index(level.value) for level in Level}
_TABLE_EVIDENCE = "evidence"


class Looked(NamedTuple):
    """Facts of a row that a page keeps.

    Attributes:
        name: The name of the row.
        level: The place of its level in ``LEVELS``. Of a row that the table does not judge, it is that of the
            rule behind causes.
        match: 0 for a pair, 1 for a value of the target alone, 2 for one of the golden alone.
        error: The relative distance of both sides; inf where they differ in a way that has no size, None if
            they were not judged.
        noise: The relative distance that rounding explains; None if it is not known.
        why: The evidence of verdicts that are not good, and the changes that judges made.
        measurements: The measurements.
    """

    name: str
    level: int
    match: int
    error: float | None
    noise: float | None
    why: str
    measurements: Measurements

    @classmethod
    def of(cls, row: Row) -> Looked:
        """Return what a page keeps of a row."""
        pair, verdict = row.pair, row.verdict
        target, golden = pair.target, pair.golden
        match = 2 if target is None else 1 if golden is None else 0
        judged = row.further.get(POLICY, verdict)
        error, noise = _distance(judged)
        why = ""
        if verdict.reasons or row.was or (judged.reasons and judged.drift is None):
            why = _why(row, judged)
        level = _NUMBERS[verdict.level]
        if level < DRIFT and judged is not verdict:
            level = DRIFT if judged.level is Level.ERROR else max(level, _NUMBERS[judged.level])
        slot = target or golden
        assert slot is not None
        return cls(slot.name, level, match, error, noise, why, row.measurements)


def _distance(judged: Verdict) -> tuple[float | None, float | None]:
    """Return the relative distance, and the one that rounding explains."""
    drift = judged.drift
    if drift is not None:
        if not drift.difference:
            return 0.0, drift.noise
        return (drift.difference / drift.scale if drift.scale else math.inf), drift.noise
    if judged.level is Level.ERROR:
        return math.inf, None
    return (None if judged.level is Level.SKIP else 0.0), None


def cell_of(error: float | None) -> Cell:
    """Return the cell of a distance."""
    return DIFFERS if error == math.inf else error


def _why(row: Row, judged: Verdict) -> str:
    reasons = row.verdict.reasons
    if judged is not row.verdict and judged.drift is None:  # a distance is shown as a number
        reasons = (*reasons, *judged.reasons)
    texts = [reason.detail for reason in reasons if reason.code == _TABLE_EVIDENCE]
    texts += [f"{changed.judge}: {changed.reason.detail}" for changed in row.was]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def own_cells(number: int, op: int, looked: Looked | None, name: str, key: str) -> tuple[Cell, ...]:
    """Return the cells of the columns ``OWN``; a name begins with ``=`` if the op's comes before the rest."""
    short = f"={name[len(key) :]}" if key and name.startswith(key) else f"!{name}"
    if looked is None:
        return number, op, -1, "", "", "", short
    state = looked.level + 8 * looked.match
    return number, op, state, cell_of(looked.error), looked.noise, looked.why, short
