"""Comparison of a test's run with its golden, as ``probe compare`` compares two recorded runs."""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import probe_core
from probe_core.errors import UserError
from probe_core.model.answers import Outcome
from probe_core.store.files import STACK_FILE
from pytest_probe.step import Step, write_step

TARGET, GOLDEN, BASELINE, OUTPUT = "target", "golden", "baseline", "out"
"""The directories below that of a comparison."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a test.

    Attributes:
        outcome: The kind of the verdict.
        has_causes: True if it names calls. If the values agree, these are calls with another argument or dtype.
        text: The verdict with its causes, as ``probe compare`` prints it.
        command: The command that shows more.
    """

    outcome: Outcome
    has_causes: bool
    text: str
    command: tuple[str, ...]

    @property
    def is_agreement(self) -> bool:
        """True if the values agree and the two runs make their calls in the same way.

        Statistics hardly show a lower precision, such as a softmax in bfloat16. The dtypes of the calls show it.
        """
        return self.outcome is Outcome.AGREE and not self.has_causes


def compare_steps(
    directory: Path,
    target: Sequence[Step],
    golden: Sequence[Step],
    baseline: Sequence[Step] = (),
    recorded: Sequence[Path] = (),
) -> Verdict:
    """Return the verdict on two runs of a test.

    Args:
        directory: The directory to write both runs to, for this comparison and for a closer look.
        target: The steps of the run under test.
        golden: Those of the golden.
        baseline: Steps that differ from the golden by what repetitions differ by; empty for none.
        recorded: The directories of the recorded target, which contain its call stacks.
    """
    _write_run(directory / TARGET, target, recorded)
    _write_run(directory / GOLDEN, golden)
    _write_run(directory / BASELINE, baseline)
    third = {"baseline": directory / BASELINE} if baseline else {}
    arguments = [str(directory / TARGET), str(directory / GOLDEN)]
    options = [text for name, path in third.items() for text in (f"--{name}", str(path))]
    command = ("probe", "compare", *arguments, *options, "-o", str(directory / OUTPUT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the text names what was not compared
        comparison = probe_core.compare(directory / TARGET, directory / GOLDEN, jobs=1, **third)
        answer = comparison.answer
    if answer is None:
        raise UserError(
            "No installed plugin gives a verdict.", "Install the distributions probe-diagnosis and probe-metrics."
        )
    text = io.StringIO()
    with redirect_stdout(text):
        for conclusion in comparison.first:
            conclusion.show()
    return Verdict(answer.outcome, bool(answer.causes), text.getvalue().rstrip(), command)


def _write_run(directory: Path, steps: Sequence[Step], recorded: Sequence[Path] = ()) -> None:
    for number, step in enumerate(steps):
        write_step(step, directory / f"step{number}" / "rank")
    for number, source in enumerate(recorded):
        if (source / STACK_FILE).is_file():
            shutil.copyfile(source / STACK_FILE, directory / f"step{number}" / "rank" / STACK_FILE)
