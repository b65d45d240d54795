"""Hooks of probe-workflow: the command ``check``, and the exit codes of compare for ``git bisect``."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import AnswerSpec, CommandSpec, Option, OptionSpec

KEPT_ANSWER = "kept_answer"
"""Name of the answer that keeps the verdict for the code that called the comparison."""


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the command ``check``."""
    return [
        CommandSpec(
            "check",
            "Record a script and compare it with a golden recording: for git bisect and CI.",
            "probe_workflow.check_command:check",
        )
    ]


@hookimpl
def probe_answers() -> list[AnswerSpec]:
    """Return the answer that keeps the verdict."""
    return [AnswerSpec(KEPT_ANSWER, "keeps the verdict for exit codes", "probe_workflow.comparison:AnswerKeeper")]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the option ``--exit-codes`` of compare."""
    return [
        OptionSpec(
            "exit_codes",
            "exits with the codes of git bisect",
            "probe_workflow.comparison:keep_answer",
            command="compare",
            options=(
                Option(
                    "scheme",
                    ("--exit-codes",),
                    "Exit with the codes of git bisect run: 0 if the runs agree, 1 if they diverged, 125 if that "
                    "cannot be told, 128 or more for a mistake.",
                    kind="text",
                    choices=("bisect",),
                ),
            ),
            wrapper="probe_workflow.bisect_command:wrap_compare",
        )
    ]
