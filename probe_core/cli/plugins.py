"""``probe plugins``: the installed plugins, their contributions, what is broken and how to mend it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from probe_core.cli import console
from probe_core.cli.main import FINISHED, MISTAKE
from probe_core.errors import counted
from probe_core.plugins.blame import what_to_do
from probe_core.plugins.manager import Manager, Plugin
from probe_core.testing.addresses import unresolved


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Try every contribution on a small pair of runs; exit with 2 if one fails.",
)
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, is_check: bool) -> int:
    """List the installed plugins, their contributions, and what is broken.

    The environment variable PROBE_PLUGINS=a,b loads only the plugins a and b.
    """
    manager = ctx.find_object(Manager) or Manager()
    if is_check:
        return _check(manager, as_json)
    for kind in manager.kinds:
        manager.contributions(kind)
    described = [_describe(manager, plugin) for plugin in manager.plugins.values()]
    if as_json:
        console.show_json(described)
    else:
        _table(described)
    return FINISHED


def _check(manager: Manager, as_json: bool) -> int:
    """Try every contribution, and print those that fail or share a name."""
    from probe_core.testing.check import check  # here: nothing else needs it

    found = check(manager)
    if as_json:
        console.show_json(asdict(found))
    else:
        for word, failures in (("failed", found.failed), ("conflict", found.conflicts)):
            for failure in failures:
                console.show(f"{console.style(word, fg='red')}  {failure.problem}")
                console.show(f"    fix: {failure.fix}")
        for failure in found.lacking:
            console.show(f"not here  {failure.problem}")
        waiting = f", {len(found.lacking)} waiting for a missing package" if found.lacking else ""
        made, conflicts = counted(found.made, "contribution"), counted(len(found.conflicts), "conflict")
        console.show(f"{made} tried, {len(found.failed)} failed, {conflicts}{waiting}")
    return MISTAKE if found.failed or found.conflicts else FINISHED


def _describe(manager: Manager, plugin: Plugin) -> dict[str, Any]:
    own = [(key, one) for key in manager.kinds for one in manager.contributions(key) if one.plugin is plugin]
    summaries: dict[str, dict[str, str]] = {}
    for kind, item in own:
        summaries.setdefault(kind, {})[item.spec.name] = item.spec.summary
    wrong = [
        f"{item.spec.title}: {problem}"
        for _, item in own
        for where in (item.spec.factory, getattr(item.spec, "ahead", ""))
        if isinstance(where, str) and where and (problem := unresolved(where))
    ]
    problem = plugin.problem or "; ".join(wrong)
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "status": "broken" if problem else "ok",
        "problem": problem,
        "fix": plugin.fix or (what_to_do(plugin.distribution) if problem else ""),
        "contributes": summaries,
    }


def _table(described: list[dict[str, Any]]) -> None:
    for plugin in described:
        status = console.style("broken", fg="red") if plugin["problem"] else console.style("ok", fg="green")
        console.show(f"{console.style(plugin['name'], bold=True)}  {plugin['distribution']} "
                     f"{plugin['version']}  {status}")  # fmt: skip
        if plugin["problem"]:
            console.show(f"    problem: {plugin['problem']}")
            console.show(f"    fix: {plugin['fix']}")
        for kind, specs in plugin["contributes"].items():
            console.show(f"  {kind.replace('_', ' ')}")
            width = max(map(len, specs))
            for name, summary in specs.items():
                console.show(f"    {name:<{width}}  {summary}")
