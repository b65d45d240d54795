"""Judges change verdicts in their order; one that fails is left out."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from probe_core.flow.judging import judge_batches
from probe_core.model import Level, Op, Reason, Row, Ruling, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.single import create_batch
from probe_core.plugins.blame import PluginError
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import JudgeSpec
from probe_core.testing import manager_of, pair_of

ARRAY = np.ones(2, np.float32)
NUMBERS = count()


class LabelJudge:
    """A judge that appends a letter to the label of each row."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        verdicts = (row.verdict._replace(label=row.verdict.label + self.letter) for row in rows)
        return {place: Ruling(verdict, Reason("letter")) for place, verdict in enumerate(verdicts)}


class OutsideJudge:
    """A judge that rules on a row that does not exist."""

    def __init__(self, index: int) -> None:
        self.index = index

    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        return {self.index: Ruling(Verdict(Level.PASS, "Yes"), Reason("outside"))}


def create_manager(*specs: JudgeSpec) -> Manager:
    module: Any = types.ModuleType(f"judging_hooks_{next(NUMBERS)}")

    def probe_judges() -> list[JudgeSpec]:
        return list(specs)

    module.probe_judges = hookimpl(probe_judges)
    return manager_of(mine=module)


def judge_two_rows(*specs: JudgeSpec) -> tuple[list[str], list[str]]:
    """Return the labels of two rows after all judges, and the notes on failures."""
    notes: list[str] = []

    def note_failure(error: PluginError, effect: str) -> None:
        notes.append(f"{error.what} {effect}")

    batch = create_batch([pair_of(ARRAY, ARRAY).pair] * 2, Op("a"), [Verdict(Level.PASS, "")] * 2)
    (judged,) = judge_batches([batch], create_manager(*specs), note_failure)
    return [row.verdict.label for row in judged.rows(0)], notes


def test_judges_change_verdicts_in_their_order() -> None:
    specs = [JudgeSpec(name, "judge", lambda name=name: LabelJudge(name), order=ord(name)) for name in "ba"]
    assert judge_two_rows(*specs) == (["ab", "ab"], [])


def test_replaced_verdicts_keep_the_judge() -> None:
    batch = create_batch([pair_of(ARRAY, ARRAY).pair], Op("a"), [Verdict(Level.PASS, "old")])
    (judged,) = judge_batches([batch], create_manager(JudgeSpec("x", "x", lambda: LabelJudge("x"))), lambda *_: None)
    (replaced,) = judged.rows(0)[0].replaced_verdicts
    assert (replaced.judge, replaced.verdict.label, replaced.reason.code) == ("x", "old", "letter")


@pytest.mark.parametrize("index", [2, -1])
def test_a_judge_that_rules_outside_the_batch_is_left_out(index: int) -> None:
    out = JudgeSpec("out", "out", lambda: OutsideJudge(index))
    labels, notes = judge_two_rows(out, JudgeSpec("x", "x", lambda: LabelJudge("x")))
    assert labels == ["x", "x"]
    (note,) = notes
    assert note.startswith(f'The judge "out" of mine failed: ValueError: {index} is not in range')
    assert "from there on" in note


def test_the_first_of_two_judges_of_one_name_is_used() -> None:
    specs = [JudgeSpec("same", "judge", lambda letter=letter: LabelJudge(letter)) for letter in "xy"]
    labels, notes = judge_two_rows(*specs)
    assert labels == ["x", "x"] and "The first is used." in notes[0]
