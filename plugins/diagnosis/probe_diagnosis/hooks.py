"""Hooks of probe-diagnosis: judges, the finder of suspects, the answer of -da, options."""

from __future__ import annotations

from probe_core.model import Mode
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import AnswerSpec, AnswerStage, FinderSpec, JudgeSpec, Option, OptionSpec

FIRST_DIFFERENCE = "first_difference"
"""Name of the answer that ``-da`` asks for, and of the policy that it needs."""


@hookimpl
def probe_judges() -> list[JudgeSpec]:
    """Return the judges of every comparison."""
    return [
        JudgeSpec("requires_grad", "warns if values agree and requires_grad does not",
                  "probe_diagnosis.judges.requires_grad:RequiresGradJudge", order=10),
        JudgeSpec("regions", "skips rows without a partner where the runs do not line up",
                  "probe_diagnosis.judges.regions:RegionJudge", order=20),
        JudgeSpec("rounding", "passes gradients that are rounding of sums that cancel",
                  "probe_diagnosis.judges.rounding:RoundingJudge", order=30),
        JudgeSpec("uninitialised", "skips uninitialized memory",
                  "probe_diagnosis.judges.uninitialized:UninitializedJudge", order=40),
    ]  # fmt: skip


@hookimpl
def probe_finders() -> list[FinderSpec]:
    """Return the finder of the suspects that the summary lists."""
    return [
        FinderSpec("suspects", "calls where the runs diverge first",
                   "probe_diagnosis.answer.verdict.suspect_finder:SuspectFinder", policies=(FIRST_DIFFERENCE,)),
    ]  # fmt: skip


@hookimpl
def probe_answers() -> list[AnswerSpec]:
    """Return the verdict on every comparison, and the answer of ``-da``."""
    return [
        AnswerSpec("verdict", "the verdict on all ranks", "probe_diagnosis.answer.verdict.answerer:VerdictAnswerer",
                   given=AnswerStage.FIRST),
        AnswerSpec(FIRST_DIFFERENCE, "the first difference over all ranks",
                   "probe_diagnosis.first_difference.answer:FirstDifferences", policies=(FIRST_DIFFERENCE,),
                   metrics={Mode.TENSOR: ("statistics",)}),
    ]  # fmt: skip


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the options of compare, and ``--check-collectives`` of merge_result."""
    return [*_create_search_options(), *_create_options_of_further_runs(), _create_collectives_option()]


def _create_search_options() -> list[OptionSpec]:
    """Return the options that select what is searched."""
    return [
        OptionSpec(
            FIRST_DIFFERENCE, "finds the first difference over all ranks",
            "probe_diagnosis.first_difference.answer:ask",
            command="compare",
            options=(
                Option("analyze", ("-da", "--diff-analyze"), "Find the first difference over all ranks; "
                       "write JSON, and tables only with --format."),
            ),
        ),
        OptionSpec(
            "resumed", "finds what a resumed run did not restore", "probe_diagnosis.resume.option:ask",
            command="compare",
            defaults={"resumed": None},
            options=(
                Option("is_resumed", ("--resumed",), "The target is a resumed run of the golden: state what "
                       "was not restored, before any call."),
                Option("step", ("--resumed-step",), "The step of the golden with which the target begins; "
                       "by default the step that resembles the target's first step most.",
                       kind="text", metavar="N", needs="is_resumed"),
            ),
        ),
    ]  # fmt: skip


def _create_options_of_further_runs() -> list[OptionSpec]:
    """Return the options that name a further run."""
    return [
        OptionSpec(
            "baseline", "explains what two golden runs differ by", "probe_diagnosis.answer.references.baseline:ask",
            command="compare",
            defaults={"baseline": None},
            options=(
                Option("run", ("--baseline",), "A second golden run (other kernels, other thread count): "
                       "what differs between both golden runs is no cause.", kind="run", metavar="GOLDEN2"),
            ),
        ),
        OptionSpec(
            "reference", "measures both runs against a more precise one",
            "probe_diagnosis.answer.references.reference:ask", command="compare",
            defaults={"reference": None},
            options=(
                Option("run", ("--reference",), "A more precise run of the golden's program (probe run "
                       "--double): where the target is as near to it as the golden, nothing is wrong.",
                       kind="run", metavar="RUN"),
            ),
        ),
    ]  # fmt: skip


def _create_collectives_option() -> OptionSpec:
    """Return the option that checks communication calls."""
    return OptionSpec(
        "collectives", "checks the communication of a run", "probe_diagnosis.collectives.command:"
        "check_collectives", command="merge-result",
        options=(
            Option("run", ("--check-collectives",), "Check what the communication calls of this run, "
                   "recorded with tensors, delivered; may be given with -i or alone.",
                   kind="run", metavar="RUN"),
            Option("fail_on", ("--fail-on",), "With --check-collectives: exit with 1 if a call delivered "
                   "wrong values, or (warning) was not checked; with 2 if none was checked.",
                   kind="text", choices=("warning", "error"), needs="run"),
        ),
    )  # fmt: skip
