"""Hooks of probe-precheck: its commands."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands of the pre-check, with the names that the guides use as aliases."""
    return [
        CommandSpec(
            "run-ut",
            "Run every recorded API alone and compare it with a high-precision reference.",
            "probe_precheck.cli.run_ut:run_ut",
            aliases=("acc-check",),
        ),
        CommandSpec(
            "multi-run-ut",
            "Run every recorded API alone, in several processes.",
            "probe_precheck.cli.run_ut:multi_run_ut",
            aliases=("multi-acc-check",),
        ),
        CommandSpec(
            "api-precision-compare",
            "Judge the pre-check of one device by that of a trusted device.",
            "probe_precheck.cli.api_precision_compare:api_precision_compare",
        ),
        CommandSpec(
            "run-overflow-check",
            "Run recorded calls again, and report which overflows are normal.",
            "probe_precheck.cli.run_overflow_check:run_overflow_check",
        ),
    ]
