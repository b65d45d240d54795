"""Facts of rows that the table's cells do not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from probe_diagnosis.api import format_evidence_texts

from probe_core.model import Cell, Level, MatchKind, ReplacedVerdict, Row, Slot, Verdict
from probe_core.model.values import Kind

DISTANCE_POLICY = "first_difference"
"""Name of the further verdict that measures the distance of a row from agreement within rounding."""
PAGE_COLUMNS = ("#row", "#op", "#state", "#error", "#noise", "#why", "#name")
"""Columns that a page adds before those of the table: the row's number, the number of its op, level and match
in one number, the relative distance, the distance that rounding explains, the evidence, and the row's name
without its op's."""
DIFFERS = "differs"
"""Text in place of a distance where values differ in a way that has no size."""
LEVELS = ("skip", "pass", "drift", "warning", "error")
"""Levels of rows, in ascending order: those of the table's verdict, and ``drift`` for a row that passes by it
although it differs by more than rounding explains."""
SKIP, PASS, DRIFT = 0, 1, 2
PAIR, TARGET_ONLY, GOLDEN_ONLY, REGION = 0, 1, 2, 4
"""Matches of rows: a pair, a value of the target alone, one of the golden alone; the last is added to them
for values of calls that do not line up. The state of a row is its level plus 8 times its match."""
_LEVEL_NUMBERS = {level: LEVELS.index(level.value) for level in Level}
NOTHING_TO_COMPARE = "nothing to compare: no value but None was recorded"
"""Evidence of rows without a value. They do not count as passed."""


class RowFacts(NamedTuple):
    """Facts of the rows of a page, as one list per fact.

    Attributes:
        names: The names of the rows.
        levels: The positions of the levels in ``LEVELS``. A row that the table does not judge has the level of
            the rule that finds causes.
        matches: The matches of the rows.
        errors: The relative distances of both sides; inf where they differ in a way that has no size, None if
            they were not judged.
        noises: The relative distances that rounding explains; None where it is not known.
        whys: The evidence of verdicts that are not good, and the changes that judges made.
    """

    names: list[str]
    levels: list[int]
    matches: list[int]
    errors: list[float | None]
    noises: list[float | None]
    whys: list[str]

    def select(self, is_included: Sequence[bool]) -> RowFacts:
        """Return the facts of the rows that are kept."""
        numbers = list(compress(self.levels, is_included)), list(compress(self.matches, is_included))
        sizes = list(compress(self.errors, is_included)), list(compress(self.noises, is_included))
        return RowFacts(
            list(compress(self.names, is_included)), *numbers, *sizes, list(compress(self.whys, is_included))
        )


def collect_row_facts(rows: Sequence[Row]) -> RowFacts:
    """Return what a page keeps of rows."""
    row_facts = RowFacts([], [], [], [], [], [])
    names, levels, matches, errors, noises, whys = row_facts
    numbers, region, error_level = _LEVEL_NUMBERS, MatchKind.REGION, _LEVEL_NUMBERS[Level.ERROR]
    for (target, golden, match_kind), _, _, verdict, _, _, _, further, changes in rows:
        judged = further.get(DISTANCE_POLICY, verdict)
        drift = judged.drift
        if drift is None:
            errors.append(_get_default_distance(judged))
            noises.append(None)
            whys.append(
                _format_evidence(verdict, judged, changes) if verdict.reasons or changes or judged.reasons else ""
            )
        else:
            difference, scale, noise = drift[:3]
            errors.append((difference / scale if scale else math.inf) if difference else 0.0)
            noises.append(noise)
            whys.append(_format_evidence(verdict, judged, changes) if verdict.reasons or changes else "")
        level = numbers[verdict.level]
        if level < DRIFT and judged is not verdict:
            further_level = numbers[judged.level]
            if further_level == error_level:
                level = DRIFT
            elif further_level > level:
                level = further_level
        if level <= PASS and _has_no_value(target, golden):
            level, errors[-1], noises[-1] = SKIP, None, None
            whys[-1] = "\n".join(filter(None, (whys[-1], NOTHING_TO_COMPARE)))
        levels.append(level)
        slot = target or golden
        assert slot is not None
        names.append(slot.name)
        presence = GOLDEN_ONLY if target is None else TARGET_ONLY if golden is None else PAIR
        matches.append(REGION + presence if match_kind is region else presence)
    return row_facts


def _has_no_value(target: Slot | None, golden: Slot | None) -> bool:
    """Return True if every recorded side of a row is None."""
    return all(slot.value.kind is Kind.NULL for slot in (target, golden) if slot is not None)


def _get_default_distance(judged: Verdict) -> float | None:
    """Return the distance of a row whose verdict measured none."""
    if judged.level is Level.ERROR:
        return math.inf
    return None if judged.level is Level.SKIP else 0.0


def format_distance(error: float | None) -> Cell:
    """Return the cell of a distance."""
    return DIFFERS if error == math.inf else error


def _format_evidence(verdict: Verdict, judged: Verdict, changes: Sequence[ReplacedVerdict]) -> str:
    texts = format_evidence_texts(verdict)
    if judged is not verdict and judged.drift is None:  # a distance is shown as a number
        texts += format_evidence_texts(judged)
    texts += [f"{changed.judge}: {changed.reason.detail}" for changed in changes]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def create_page_columns(
    numbers: Sequence[int], ops: Sequence[tuple[int, str]], row_facts: RowFacts
) -> list[Sequence[Cell]]:
    """Return the columns ``PAGE_COLUMNS`` of rows.

    Args:
        numbers: The numbers of the rows.
        ops: The number and the key of the op of each.
        row_facts: What the page keeps of them.
    """
    errors = row_facts.errors
    return [
        numbers,
        [number for number, _ in ops],
        [level + 8 * match for level, match in zip(row_facts.levels, row_facts.matches)],
        [DIFFERS if error == math.inf else error for error in errors] if math.inf in errors else errors,
        row_facts.noises,
        row_facts.whys,
        [shorten_name(name, key) for name, (_, key) in zip(row_facts.names, ops)],
    ]


def shorten_name(name: str, key: str) -> str:
    """Return the name of a row; one that begins with its op's key has ``=`` in place of that."""
    return f"={name[len(key) :]}" if key and name.startswith(key) else f"!{name}"
