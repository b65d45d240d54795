"""Facts of rows that the table's cells do not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from probe_core.model import Cell, How, Level, Row, Verdict

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
PAIR, TARGET_ONLY, GOLDEN_ONLY, REGION = 0, 1, 2, 3
"""Matches of rows: a pair, a value of the target alone, one of the golden alone, one of calls that do not
line up. The state of a row is its level plus 8 times the first three, plus ``IN_REGION`` for the last."""
IN_REGION = 32
_NUMBERS = {level: LEVELS.index(level.value) for level in Level}
_TABLE_EVIDENCE = "evidence"


class Looked(NamedTuple):
    """Facts of a row that a page keeps.

    Attributes:
        name: The name of the row.
        level: The place of its level in ``LEVELS``. Of a row that the table does not judge, it is that of the
            rule behind causes.
        match: ``PAIR``, ``TARGET_ONLY`` or ``GOLDEN_ONLY``.
        is_region: True for a value of calls that do not line up.
        error: The relative distance of both sides; inf where they differ in a way that has no size, None if
            they were not judged.
        noise: The relative distance that rounding explains; None if it is not known.
        why: The evidence of verdicts that are not good, and the changes that judges made.
    """

    name: str
    level: int
    match: int
    is_region: bool
    error: float | None
    noise: float | None
    why: str


def looked_at(rows: Sequence[Row]) -> list[Looked]:
    """Return what a page keeps of each row."""
    found: list[Looked] = []
    add, numbers, region, new = found.append, _NUMBERS, How.REGION, tuple.__new__
    for row in rows:
        (target, golden, how), _, _, verdict, _, _, _, further, was = row
        judged = further.get(POLICY, verdict)
        drift = judged.drift
        if drift is None:
            error, noise = _without_size(judged), None
        else:
            difference, scale, noise, _ = drift
            error = (difference / scale if scale else math.inf) if difference else 0.0
        why = ""
        if verdict.reasons or was or (drift is None and judged.reasons):
            why = _why(row, judged)
        level = numbers[verdict.level]
        if level < DRIFT and judged is not verdict:
            level = DRIFT if judged.level is Level.ERROR else max(level, numbers[judged.level])
        slot = target or golden
        assert slot is not None
        match = GOLDEN_ONLY if target is None else TARGET_ONLY if golden is None else PAIR
        add(new(Looked, (slot.name, level, match, how is region, error, noise, why)))
    return found


def _without_size(judged: Verdict) -> float | None:
    """Return the distance of a row whose verdict measured none."""
    if judged.level is Level.ERROR:
        return math.inf
    return None if judged.level is Level.SKIP else 0.0


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


def own_columns(
    numbers: Sequence[int], ops: Sequence[tuple[int, str]], looked: Sequence[Looked]
) -> list[Sequence[Cell]]:
    """Return the columns ``OWN`` of rows.

    Args:
        numbers: The numbers of the rows.
        ops: The number and the key of the op of each.
        looked: What the page keeps of each.
    """
    names, levels, matches, regions, errors, noises, whys = zip(*looked)
    return [
        numbers,
        [number for number, _ in ops],
        [level + 8 * match + IN_REGION * region for level, match, region in zip(levels, matches, regions)],
        [DIFFERS if error == math.inf else error for error in errors] if math.inf in errors else errors,
        noises,
        whys,
        [short_name(name, key) for name, (_, key) in zip(names, ops)],
    ]


def short_name(name: str, key: str) -> str:
    """Return the name of a row; one that begins with its op's key has ``=`` in place of that."""
    return f"={name[len(key) :]}" if key and name.startswith(key) else f"!{name}"
