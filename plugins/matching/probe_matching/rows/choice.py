"""The option ``--rows``: which samples of both batches are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from probe_core.errors import UserError
from probe_core.model.plan import Plan

TOKENS_FILE = "tokens.json"
"""Name of the file of samples and tokens that recorders write."""
MAX_ROW = 1_000_000
"""Largest number of a row that is accepted."""
_EXAMPLE = f"Write --rows target=0,golden=3 (lists and ranges: target=0-3,golden=4-7), or --rows {TOKENS_FILE}."
_SIDE = re.compile(r"(target|golden)=(.*)", re.DOTALL)
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The samples of both batches that are compared, in the order in which they pair.

    Attributes:
        target: The rows of the target's batch; empty for all.
        golden: The rows of the golden's batch; empty for all.
        file: The name of the file next to each record file that lists samples and tokens; empty for none.
    """

    target: tuple[int, ...] = ()
    golden: tuple[int, ...] = ()
    file: str = ""


def get_row_choice(plan: Plan) -> RowChoice | None:
    """Return the rows that a plan chooses; None if whole values are compared."""
    choice: RowChoice | None = plan.options.get("rows")
    return choice


def add_row_choice(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with ``--rows``.

    Args:
        plan: The plan without it.
        values: The text of the option.
        option_names: The names of the options that the user gave.

    Raises:
        UserError: The text is not valid, or an option is given that excludes it.
    """
    if plan.options.get("baseline") is not None:
        raise UserError("--rows and --baseline exclude each other.", "Leave one of them out.")
    return plan.with_options(rows=parse_rows(values["rows"]))


def parse_rows(text: str) -> RowChoice:
    """Return the choice that a text such as ``target=0,golden=2-5`` or the name of a file states.

    Raises:
        UserError: The text is not valid.
    """
    items = [item for item in re.split(r"[,\s]+", text) if item]
    if len(items) == 1 and "=" not in text:
        if re.search(r"[/\\]|^\.*$|^[\d-]+$", items[0]):
            raise UserError(
                f'--rows: "{text}" is not the name of a file next to the record files of both runs.', _EXAMPLE
            )
        return RowChoice(file=items[0])
    rows: dict[str, list[int]] = {}
    side = ""
    for item in items:
        match = _SIDE.fullmatch(item)
        if match is not None:
            side, item = match[1], match[2]
            if side in rows:
                raise UserError(f"--rows names the {side} twice.", _EXAMPLE)
            rows[side] = []
        if not side:
            raise UserError(f'--rows: "{item}" belongs to no run.', _EXAMPLE)
        rows[side] += _parse_range(item)
    if not rows:
        raise UserError("--rows names no row.", _EXAMPLE)
    chosen = RowChoice(tuple(rows.get("target", ())), tuple(rows.get("golden", ())))
    _check_choice(chosen)
    return chosen


def _parse_range(text: str) -> range:
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last <= MAX_ROW:
        raise UserError(f'--rows: "{text}" is not a row or a range such as 2-5.', _EXAMPLE)
    return range(first, last + 1)


def _check_choice(chosen: RowChoice) -> None:
    for side, rows in (("target", chosen.target), ("golden", chosen.golden)):
        if len(set(rows)) < len(rows):
            raise UserError(f"--rows names a row of the {side} twice.", _EXAMPLE)
    counts = len(chosen.target), len(chosen.golden)
    if all(counts) and counts[0] != counts[1]:
        raise UserError(
            f"--rows names {counts[0]} rows of the target and {counts[1]} of the golden, and rows are "
            "compared one by one.",
            "Name as many rows of both runs.",
        )
