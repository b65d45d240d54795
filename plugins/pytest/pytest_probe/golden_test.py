"""The judgment on a run of a test that has a golden file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError
from pytest_probe import sentences
from pytest_probe.comparison import Verdict, compare_steps
from pytest_probe.golden_file import GoldenFile, Place, Section, parse_check, read_golden
from pytest_probe.spread import blank_values, list_undetermined, spread_step
from pytest_probe.step import RecordedStep
from pytest_probe.value_text import round_value


@dataclass(frozen=True, slots=True)
class GoldenTest:
    """A test that has a golden file.

    Attributes:
        name: Its node id.
        path: The golden file.
        shown_path: The same, as seen from pytest's root directory.
        directory: A directory for the recorded runs.
        updates: True to write the golden file.
    """

    name: str
    path: Path
    shown_path: str
    directory: Path
    updates: bool

    @property
    def update_fix(self) -> str:
        """The sentence on how to write the golden file."""
        return sentences.describe_update(self.name)

    def create_directory(self) -> Path:
        """Create and return a directory for a recorded run."""
        return Path(tempfile.mkdtemp(prefix="recorded-", dir=self.directory))

    def read(self) -> GoldenFile:
        """Return the golden file.

        Raises:
            UserError: There is none, or it cannot be read.
        """
        if not self.path.exists():
            raise UserError(f"The golden file {self.shown_path} is missing.", self.update_fix)
        return read_golden(self.path, self.shown_path, sentences.describe_damage(self.name))


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The steps of a run of a test.

    Attributes:
        place: The device, and the version of torch.
        steps: The steps.
    """

    place: Place
    steps: Sequence[RecordedStep]


@dataclass(frozen=True, slots=True)
class Judgment:
    """The judgment on a run.

    Attributes:
        failure: The text on which the test fails; empty if it passes.
        notes: Notes for the summary of the whole session.
    """

    failure: str = ""
    notes: tuple[str, ...] = ()


def judge_run(test: GoldenTest, run: RecordedRun) -> Judgment:
    """Return the judgment on a run by the golden file of its test.

    Raises:
        UserError: The test recorded nothing, or there is no golden file that can be read.
    """
    if not run.steps:
        raise UserError(sentences.NOTHING_RECORDED, sentences.RECORD_SOMETHING)
    section = test.read().find(run.place)
    if section is None:
        raise UserError(f"The golden file {test.shown_path} has no section.", test.update_fix)
    notes = (sentences.describe_place(section.place, run.place),) if section.place != run.place else ()
    if len(run.steps) != len(section.checks):
        return Judgment(
            sentences.describe_step_count(test.name, test.shown_path, len(run.steps), len(section.checks)), notes
        )
    if all(check.is_equal(recorded) for check, recorded in zip(section.checks, run.steps)):
        return Judgment("", notes)
    verdict = compare_with_section(test, run, section)
    if verdict.is_agreement:
        return Judgment("", notes)
    return Judgment(sentences.describe_mismatch(test.name, test.shown_path, section.place, verdict), notes)


def compare_with_section(test: GoldenTest, run: RecordedRun, section: Section) -> Verdict:
    """Return the verdict on a run and a section, whose values may differ by rounding and by their spread."""
    fix = sentences.describe_damage(test.name)
    target, golden, baseline = [], [], []
    for run_step, check in zip(run.steps, section.checks):
        recorded = parse_check(check, test.shown_path, fix)
        undetermined = list_undetermined(recorded, check.spread)
        target.append(blank_values(run_step.step.replace_tensors(lambda _, value: round_value(value)), undetermined))
        golden.append(blank_values(recorded, undetermined))
        baseline.append(spread_step(golden[-1], check.spread))
    baseline = baseline if any(check.spread for check in section.checks) else []
    directories = [run_step.directory for run_step in run.steps]
    return compare_steps(test.directory, target, golden, baseline, directories)
