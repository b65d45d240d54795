"""Table of MindSpore's names and PyTorch's: APIs, arguments, classes and parameters.

``apis.yaml`` is written by ``make_names.py``, by reflection over both frameworks; the other files hold the
names that reflection cannot find. See docs/pairing.md#frameworks.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from probe_matching.api import Dialect, Hint, NameTable, Overload, SlotMap, add_entries, create_api_entries


def load_table() -> NameTable:
    """Return the table of names of both frameworks."""
    names, modules = _load("apis.yaml"), _load("modules.yaml")
    mindspore, pytorch = names["mindspore"], names["pytorch"]
    built_in = NameTable(
        source=Dialect(
            apis=_list_pairs(mindspore),
            arguments=mindspore["arguments"],
            slots={name: _create_parameter_map(pairs) for name, pairs in modules["parameters"].items()},
            classes=modules["classes"],
            overloads={entry["api"]: Overload(entry["above"], entry["is"]) for entry in _load("overloads.yaml")},
        ),
        target=Dialect(
            apis=_list_pairs(pytorch),
            arguments=pytorch["arguments"],
            composites={name: 0 for name in modules["composites"]}
            | {name: 3 for name in modules["composites_of_stacks"]},
        ),
        hints=tuple(
            Hint(frozenset(item["names"]), item["text"], item["when"] == "differs") for item in _load("hints.yaml")
        ),
    )
    entries, problems = create_api_entries(_load("calls.yaml"), "calls.yaml")
    assert not problems, problems
    return add_entries(built_in, entries)


def _list_pairs(names: dict[str, Any]) -> dict[str, str]:
    """Return the common name of each API of a framework, from lists by scope and single pairs."""
    same_names = {
        f"{scope}.{name}": f"{common_scope}.{name}"
        for scope, others in names["same"].items()
        for common_scope, bare in others.items()
        for name in bare
    }
    renamed: dict[str, str] = names["renamed"]
    return same_names | renamed


def _create_parameter_map(pairs: dict[str, str]) -> SlotMap:
    """Return a map of a class's parameters that knows both names; ``mint.nn`` has classes with PyTorch's."""
    return SlotMap(parameters=pairs | {name: name for name in pairs.values()})


def _load(name: str) -> Any:
    """Return the content of a yaml file beside this module."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(files(__package__).joinpath(name).read_text("utf-8"), loader)
