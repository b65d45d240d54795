"""Update of golden files. Repetitions of the test measure the spread of its values."""

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
from pytest_probe.spread import measure_spreads
from pytest_probe.step import Step

TEST_ERRORS = (Exception, pytest.fail.Exception, pytest.skip.Exception)
"""Exceptions that end a repetition. A repetition uses other data, so that assertions of the test may fail."""


def update_golden(test: GoldenTest, run: RecordedRun, repeat: Callable[[Repetition], RecordedRun]) -> Judgment:
    """Write the section of a run to the golden file if the test is repeatable, and return the judgment on the test.

    Args:
        test: The test.
        run: The run of the test that is written to the golden file.
        repeat: A function that runs the test again and returns the run.

    Raises:
        UserError: The test recorded nothing, or the file cannot be written.
    """
    if not run.steps:
        raise UserError(sentences.NOTHING_RECORDED, sentences.RECORD_SOMETHING)
    golden_repetition, repetitions = list_repetitions()
    repeated_runs = [_try_repetition(repeat, repetition) for repetition in repetitions]
    same_data_run = repeated_runs[0]
    complete_runs = [
        repeated for repeated in repeated_runs if repeated is not None and len(repeated.steps) == len(run.steps)
    ]
    same_data_runs = [repeated for repeated in complete_runs if repeated is same_data_run]
    rounded_data_runs = [repeated for repeated in complete_runs if repeated is not same_data_run]
    spreads = measure_spreads(_get_steps([run])[0], _get_steps(same_data_runs), _get_steps(rounded_data_runs))
    checks = tuple(Check.from_step(step, spread) for step, spread in zip(run.steps, spreads))
    threads = sorted({golden_repetition.threads, *(repetition.threads for repetition in repetitions)})
    section = Section(run.place, checks, {"threads": threads, "repetitions": len(complete_runs)})
    mismatch = None if same_data_run is None else _find_mismatch(test, same_data_run, section)
    if mismatch is not None:
        return Judgment(sentences.describe_other_repetition(mismatch))
    try:
        _read_existing_golden(test).replace(section).write(test.path)
    except UserError as error:
        raise UserError(error.what, sentences.describe_unwritable(test.name)) from None
    return Judgment(notes=(sentences.WROTE,))


def _get_steps(runs: Sequence[RecordedRun]) -> list[list[Step]]:
    return [[recorded.step for recorded in run.steps] for run in runs]


def _find_mismatch(test: GoldenTest, repetition: RecordedRun, section: Section) -> Verdict | None:
    """Return the verdict on a repetition with the same data if its values differ from the section; None if they agree.

    The values are first compared without their spread. If this comparison cannot tell whether they differ, they are
    compared with their spread, which allows for accumulated rounding.
    """
    section_without_spread = Section(section.place, tuple(replace(check, spread={}) for check in section.checks))
    verdict = compare_with_section(test, repetition, section_without_spread)
    if verdict.outcome is Outcome.CANNOT_TELL:
        verdict = compare_with_section(test, repetition, section)
    return None if verdict.is_agreement else verdict


def _try_repetition(repeat: Callable[[Repetition], RecordedRun], repetition: Repetition) -> RecordedRun | None:
    """Return a run of the test; None if it fails."""
    try:
        return repeat(repetition)
    except TEST_ERRORS:
        return None


def _read_existing_golden(test: GoldenTest) -> GoldenFile:
    """Return the golden file to update; an empty golden file if it is missing or damaged."""
    try:
        return test.read()
    except UserError:
        return GoldenFile(test.name)
