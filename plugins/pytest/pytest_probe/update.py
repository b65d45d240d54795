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
    first, *others = list_repetitions()
    runs: dict[Repetition, RecordedRun | None] = {first: run}
    for repetition in others:
        runs[repetition] = _try_repetition(repeat, repetition)
    pairs = [(runs[one], runs[other]) for one, other in zip(list(runs)[::2], list(runs)[1::2])]
    measured = [(one, other) for one, other in pairs if one is not None and other is not None]
    checks = tuple(
        Check.from_step(step, measure_spread(step, [(one.steps[n], other.steps[n]) for one, other in measured
                                                    if n < min(len(one.steps), len(other.steps))]))
        for n, step in enumerate(run.steps)
    )  # fmt: skip
    section = Section(run.place, checks, {"threads": [first.threads, others[0].threads], "data_sets": len(measured)})
    second = runs[others[0]]
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
