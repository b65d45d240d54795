"""``probe plugins``: the installed plugins, their contributions, what is broken and how to correct it."""

from __future__ import annotations

from typing import Any

import click

from probe_core import console
from probe_core.plugins.blame import describe_fix
from probe_core.plugins.manager import Manager, Plugin
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.plugin_options import collect_option_actions
from probe_ranks.command.addresses import explain_unresolved


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> int:
    """List the installed plugins, their contributions, and what is broken.

    The environment variable PROBE_PLUGINS=a,b loads only the plugins a and b, and the scheduler of
    comparisons of several ranks.
    """
    manager = ctx.find_object(Manager) or Manager()
    for function, _ in collect_option_actions(ctx, manager):  # an option of a plugin replaces the list
        return int(function(manager, as_json=as_json))
    for kind in manager.kinds:
        manager.contributions(kind)
    described = [_describe(manager, plugin) for plugin in manager.plugins.values()]
    if as_json:
        console.show_json(described)
    else:
        _print_table(described)
    return EXIT_FINISHED


def _describe(manager: Manager, plugin: Plugin) -> dict[str, Any]:
    contributions = [
        (key, contribution)
        for key in manager.kinds
        for contribution in manager.contributions(key)
        if contribution.plugin is plugin
    ]
    summaries: dict[str, dict[str, str]] = {}
    for kind, item in contributions:
        summaries.setdefault(kind, {})[item.spec.name] = item.spec.summary
    wrong = [
        f"{item.spec.title}: {problem}"
        for _, item in contributions
        for where in (item.spec.factory, getattr(item.spec, "ahead", ""))
        if isinstance(where, str) and where and (problem := explain_unresolved(where))
    ]
    problem = plugin.problem or "; ".join(wrong)
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "status": "broken" if problem else "ok",
        "problem": problem,
        "fix": plugin.fix or (describe_fix(plugin.distribution) if problem else ""),
        "contributes": summaries,
    }


def _print_table(described: list[dict[str, Any]]) -> None:
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
