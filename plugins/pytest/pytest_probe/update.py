"""Writing of golden files: the spread is measured by repetitions of the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from probe_core.errors import UserError
from pytest_probe import sentences
from pytest_probe.golden_file import Check, GoldenFile, Section
from pytest_probe.golden_test import GoldenTest, Judgment, RecordedRun, compare_with_section
from pytest_probe.repetitions import Repetition, list_repetitions
from pytest_probe.spread import measure_spread

TEST_ERRORS = (Exception, pytest.fail.Exception, pytest.skip.Exception)
"""What ends a repetition, which runs with data that the assertions of the test were not written for."""


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
    complete = [other for other in repetitions if other is not None and len(other.steps) == len(run.steps)]
    checks = tuple(
        Check.from_step(step, measure_spread(step, [other.steps[number] for other in complete]))
        for number, step in enumerate(run.steps)
    )
    threads = sorted({first.threads, *(repetition.threads for repetition in others)})
    section = Section(run.place, checks, {"threads": threads, "repetitions": len(complete)})
    second = repetitions[0]
    if second is not None and (failure := compare_with_section(test, second, section)):
        return Judgment(sentences.describe_other_repetition(failure))
    _read_old(test).replace(section).write(test.path)
    return Judgment(notes=(sentences.WROTE,))


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
