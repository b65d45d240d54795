"""Writing of golden files: the spread is measured by repetitions of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from probe_core.errors import UserError
from probe_core.model.answers import Outcome
from pytest_probe import sentences
from pytest_probe.comparison import Verdict
from pytest_probe.golden_file import Check, GoldenFile, Section
from pytest_probe.golden_test import GoldenTest, Judgment, RecordedRun, compare_with_section
from pytest_probe.repetitions import Repetition, list_repetitions
from pytest_probe.spread import measure_spread
from pytest_probe.step import Step

TEST_ERRORS = (Exception, pytest.fail.Exception, pytest.skip.Exception)
"""Errors that end a repetition, whose data the assertions of the test were not written for."""


def update_golden(test: GoldenTest, run: RecordedRun, repeat: Callable[[Repetition], RecordedRun]) -> Judgment:
    """Write the section of a run, and return the judgment on whether the test repeats.

    Args:
        test: The test.
        run: Its run, as the golden file will hold it.
        repeat: Runs the test again.

    Raises:
        UserError: The test recorded nothing, or the file cannot be written.
    """
    if not run.steps:
        raise UserError(sentences.NOTHING_RECORDED, sentences.RECORD_SOMETHING)
    first, others = list_repetitions()
    repetitions = [_try_repetition(repeat, repetition) for repetition in others]
    complete = [repeated for repeated in repetitions if repeated is not None and len(repeated.steps) == len(run.steps)]
    checks = tuple(
        Check.from_step(step, _measure_spread(step, number, complete, has_same_data=repetitions[0] in complete))
        for number, step in enumerate(run.steps)
    )
    threads = sorted({first.threads, *(repetition.threads for repetition in others)})
    section = Section(run.place, checks, {"threads": threads, "repetitions": len(complete)})
    if (same_data := repetitions[0]) is not None and (verdict := _find_other_values(test, same_data, section)):
        return Judgment(sentences.describe_other_repetition(verdict))
    _read_old(test).replace(section).write(test.path)
    return Judgment(notes=(sentences.WROTE,))


def _measure_spread(step: Step, number: int, runs: Sequence[RecordedRun], *, has_same_data: bool) -> dict[str, float]:
    """Return the spread of a step; the first run has the same data if ``has_same_data``."""
    steps = [run.steps[number] for run in runs]
    return measure_spread(step, steps[:has_same_data], steps[has_same_data:])


def _find_other_values(test: GoldenTest, repetition: RecordedRun, section: Section) -> Verdict | None:
    """Return the verdict on a repetition with the same data that computed other values; None if it did not.

    Without their spread, values may differ by rounding that has grown, but not by anything else.
    """
    exact = Section(section.place, tuple(replace(check, spread={}) for check in section.checks))
    verdict = compare_with_section(test, repetition, exact)
    if verdict.outcome is Outcome.CANNOT_TELL:
        verdict = compare_with_section(test, repetition, section)
    return None if verdict.outcome is Outcome.AGREE else verdict


def _try_repetition(repeat: Callable[[Repetition], RecordedRun], repetition: Repetition) -> RecordedRun | None:
    """Return a run of the test; None if it fails."""
    try:
        return repeat(repetition)
    except TEST_ERRORS:
        return None


def _read_old(test: GoldenTest) -> GoldenFile:
    """Return the golden file that is to be updated; an empty one if it is missing or damaged."""
    try:
        return test.read()
    except UserError:
        return GoldenFile(test.name)
