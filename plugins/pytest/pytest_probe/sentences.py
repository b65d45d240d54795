"""The sentences of the fixture ``probe_golden``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from probe_core.model.answers import Outcome

if TYPE_CHECKING:
    from pytest_probe.comparison import Verdict
    from pytest_probe.golden_file import Place

NOTHING_RECORDED = "The test uses probe_golden, but records nothing with it."
RECORD_SOMETHING = "Call probe_golden.check(model, x), or write: with probe_golden.record(model):"
WROTE = "golden files written"


def describe_update(test: str) -> str:
    """Return the sentence on how to write a golden file."""
    return f"Write it, and commit it: {_format_update(test)}"


def describe_damage(test: str) -> str:
    """Return the sentence on how to get a golden file back."""
    return f"Restore it from version control, or write it anew: {_format_update(test)}"


def describe_unwritable(test: str) -> str:
    """Return the sentence on a golden file that cannot be written."""
    return f"Make the path a file in a directory that you can write to, and write the golden: {_format_update(test)}"


def describe_place(golden: Place, run: Place) -> str:
    """Return the note on a golden of another device or version of torch."""
    return f"compared with the golden of {golden}, because there is no golden of {run}"


def describe_step_count(test: str, file: str, target: int, golden: int) -> str:
    """Return the text on a run with another number of steps."""
    steps = "1 step" if target == 1 else f"{target} steps"
    return (
        f"The test recorded {steps} with probe_golden, and its golden {file} contains {golden}.\n"
        f"If the change is intended, write the golden anew: {_format_update(test)}"
    )


def describe_mismatch(test: str, file: str, place: Place, verdict: Verdict) -> str:
    """Return the text on a run that differs from its golden."""
    summary = "The values differ from"
    if verdict.outcome is Outcome.AGREE:
        summary = "The values agree within rounding, but calls have other arguments or dtypes than in"
    return (
        f"{summary} the golden {file} ({place}).\n"
        f"{verdict.text}\n"
        f"Show more: {_format_command(verdict.command)}\n"
        f"If the change is intended, write the golden anew: {_format_update(test)}"
    )


def describe_other_repetition(verdict: Verdict) -> str:
    """Return the text on a test that does not repeat."""
    return (
        "The golden file was not written: the test computes other values when it runs again, on another number of "
        f"threads.\n{verdict.text}\n"
        "Make the test repeatable: set the seeds of its random numbers in the test, and create its model there."
    )


def _format_update(test: str) -> str:
    return _format_command(("pytest", test, "--probe-update"))


def _format_command(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))
