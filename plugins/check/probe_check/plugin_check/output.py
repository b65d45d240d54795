"""The option ``--check`` of ``probe plugins``: trials of all contributions, and those that failed."""

from __future__ import annotations

from dataclasses import asdict

from probe_check.plugin_check.check import check_plugins
from probe_core import console
from probe_core.errors import format_count
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINISHED, EXIT_USER_ERROR


def print_check(manager: Manager, *, as_json: bool = False) -> int:
    """Try every contribution, print those that fail or share a name, and return the exit code."""
    result = check_plugins(manager)
    if as_json:
        console.show_json(asdict(result))
    else:
        for word, failures in (("failed", result.failed), ("conflict", result.conflicts)):
            for failure in failures:
                console.show(f"{console.style(word, fg='red')}  {failure.problem}")
                console.show(f"    fix: {failure.fix}")
        for failure in result.lacking:
            console.show(f"not here  {failure.problem}")
        waiting = f", {len(result.lacking)} waiting for a missing package" if result.lacking else ""
        tried, conflicts = (
            format_count(result.contribution_count, "contribution"),
            format_count(len(result.conflicts), "conflict"),
        )
        console.show(f"{tried} tried, {len(result.failed)} failed, {conflicts}{waiting}")
    return EXIT_USER_ERROR if result.failed or result.conflicts else EXIT_FINISHED
