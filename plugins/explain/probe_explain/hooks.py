"""Hooks of probe-explain: its command, and the option of compare that asks for the same."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import AnswerSpec, CommandSpec, Option, OptionSpec


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the command ``explain``."""
    return [
        CommandSpec(
            "explain",
            "Compute recorded calls again in higher precision and say which introduced error.",
            "probe_explain.command:explain",
        )
    ]


@hookimpl
def probe_answers() -> list[AnswerSpec]:
    """Return the answer that ``--explain`` asks for."""
    return [AnswerSpec("explain", "calls of the target that introduced error", "probe_explain.answer:TargetExplainer")]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the option ``--explain`` of compare."""
    return [
        OptionSpec(
            "explain",
            "computes the target's calls again",
            "probe_explain.answer:request_explanation",
            command="compare",
            options=(
                Option(
                    "explain",
                    ("--explain",),
                    "Compute the target's calls again in higher precision (task tensor), and say which "
                    "introduced error.",
                ),
            ),
        )
    ]
