"""MindSpore's names in PyTorch's words, as data: which API, argument, class and parameter is which.

``apis.yaml`` is written by ``make_names.py`` by reflection over both frameworks; the other files say what
reflection cannot know.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from probe_matching import (
    Dialect,
    Hint,
    NameTable,
    Overload,
    SlotMap,
    api_entries,
    with_entries,
)


def table() -> NameTable:
    """The names of both frameworks."""
    names, modules = _load("apis.yaml"), _load("modules.yaml")
    ours, theirs = names["mindspore"], names["pytorch"]
    built_in = NameTable(
        source=Dialect(
            apis=_pairs(ours),
            arguments=ours["arguments"],
            slots={name: _parameters(pairs) for name, pairs in modules["parameters"].items()},
            classes=modules["classes"],
            overloads={one["api"]: Overload(one["above"], one["is"]) for one in _load("overloads.yaml")},
        ),
        target=Dialect(
            apis=_pairs(theirs),
            arguments=theirs["arguments"],
            composites={name: 0 for name in modules["composites"]}
            | {name: 3 for name in modules["composites_of_stacks"]},
        ),
        hints=tuple(
            Hint(frozenset(item["names"]), item["text"], item["when"] == "differs")
            for item in _load("hints.yaml")
        ),
    )
    entries, problems = api_entries(_load("calls.yaml"), "calls.yaml")
    assert not problems, problems
    return with_entries(built_in, entries)


def _pairs(names: dict[str, Any]) -> dict[str, str]:
    """Own names and common ones, from lists by scope and single pairs."""
    same = {
        f"{scope}.{name}": f"{other}.{name}"
        for scope, others in names["same"].items()
        for other, bare in others.items()
        for name in bare
    }
    renamed: dict[str, str] = names["renamed"]
    return same | renamed


def _parameters(pairs: dict[str, str]) -> SlotMap:
    """Parameters under either framework's names, for ``mint.nn`` has classes with PyTorch's."""
    return SlotMap(parameters=pairs | {name: name for name in pairs.values()})


def _load(name: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(files(__package__).joinpath(name).read_text("utf-8"), loader)
