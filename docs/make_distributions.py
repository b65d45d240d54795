"""Writes ``probe_core/plugins/distributions.yaml``: what each distribution of this repository contributes.

With it, probe names the distribution to install for a contribution or an option that is missing.
``python make.py distributions`` runs this file after a plugin's hooks or dependencies change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from probe_core.plugins.distributions import PLUGINS_VARIABLE
from probe_core.plugins.manager import Manager

ROOT = Path(__file__).parent.parent
FILE = ROOT / "probe_core" / "plugins" / "distributions.yaml"
OMITTED_KINDS = {"references"}
"""Kinds that no user names."""
HEAD = """\
# What each distribution of this repository contributes, and the directories that pip installs it from.
# Written by: python make.py distributions
"""


def make() -> str:
    """Return the content of the file."""
    projects = {name: (path, needed) for name, path, needed in _read_projects()}
    contributions = _collect_contributions(projects)
    lines = [HEAD.rstrip()]
    for name in projects:
        lines += ["", f"{name}:", f"  directories: {_format_list(_list_directories(name, projects))}"]
        lines += [f"  {kind}: {_format_list(names)}" for kind, names in contributions[name].items()]
    return "\n".join(lines) + "\n"


def _read_projects() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, the directory and the dependencies of each distribution with a plugin or a kit."""
    for path in sorted((ROOT / "plugins").glob("*/pyproject.toml")):
        text = path.read_text("utf-8")
        name = re.search(r'^name = "(.+)"', text, re.MULTILINE)
        needed = re.search(r"^dependencies = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        assert name is not None, f"{path} has no name"
        if "packages.find" in text:  # the other one, probe-all, has no code
            yield name[1], f"plugins/{path.parent.name}", re.findall(r'"(probe-[\w-]+)"', needed[1] if needed else "")


def _list_directories(name: str, projects: Mapping[str, tuple[str, list[str]]]) -> list[str]:
    """Return the directories that are installed together: the distribution, then all that it needs."""
    names = [name]
    for needing in names:  # grows while it is read
        names += [needed for needed in projects[needing][1] if needed in projects and needed not in names]
    return [projects[needed][0] for needed in names]


def _collect_contributions(projects: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return the names that each distribution contributes, by their kinds, and its options as ``flags``."""
    os.environ.pop(PLUGINS_VARIABLE, None)
    manager = Manager()
    contributions: dict[str, dict[str, list[str]]] = {name: {} for name in projects}
    for kind in (kind for kind in manager.kinds if kind not in OMITTED_KINDS):
        for item in manager.contributions(kind):
            kinds = contributions.get(item.plugin.distribution, {})
            spec: Any = item.spec
            kinds.setdefault(kind, []).extend((spec.name, *getattr(spec, "aliases", ())))
            for option in spec.options if kind == "options" else ():
                texts = filter(None, (*option.flags, *option.also, option.python_name))
                kinds.setdefault("flags", []).extend(f"{spec.command.replace('_', '-')} {text}" for text in texts)
    return contributions


def _format_list(items: list[str]) -> str:
    text: str = yaml.safe_dump(items, default_flow_style=True, width=10_000)
    return text.strip()


if __name__ == "__main__":
    FILE.write_text(make(), "utf-8")
