"""Hooks of the pre-check kit: its commands."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands of the pre-check, and the names that they have in msprobe 26."""
    return [
        *(
            CommandSpec(
                name,
                f"Run every recorded API alone, against a reference{note}.",
                f"probe_precheck.cli.run_ut:{made}",
            )
            for name, made, note in (
                ("run_ut", "run_ut", ""),
                ("multi_run_ut", "multi_run_ut", ", in several processes"),
                ("acc_check", "run_ut", " (run_ut)"),
                ("multi_acc_check", "multi_run_ut", ", in several processes (multi_run_ut)"),
            )
        ),
        CommandSpec(
            "api_precision_compare",
            "Judge what run_ut found on one device by what it found on another.",
            "probe_precheck.cli.api_precision_compare:api_precision_compare",
        ),
    ]
