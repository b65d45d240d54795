"""Functions of MindSpore and torch behind the names of records."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from probe_matching.api import NameTable
from probe_precheck.api import NotRun
from probe_precheck.model import describe_unknown_function

from probe_mindspore.names import load_table
from probe_mindspore.precheck.tensors import (
    STORAGE_DTYPES,
    Arguments,
    DType,
    TensorArgument,
    iterate_leaves,
    map_leaves,
    parse_dtype_name,
    rules,
)

PLACES = {
    "Mint": ("mindspore.mint", "torch"),
    "MintFunctional": ("mindspore.mint.nn.functional", "torch.nn.functional"),
    "Tensor": ("mindspore.Tensor", "torch.Tensor"),
    "Functional": ("mindspore.ops", ""),
}
"""Modules and classes that hold the APIs of each type: MindSpore's, and torch's for the same names."""

RENAMED_SCOPES = ("Functional", "Tensor")
"""Types of APIs whose arguments may have other names or another order than in torch."""

UNCHECKED_REASONS = {
    "Primitive": "what a primitive was built with is not recorded",
    "Cell": "a Cell is not a single API; the APIs that it calls are checked one by one",
    "Jit": "a compiled graph is not a single API",
    "Distributed": "collectives need other ranks",
    "MintDistributed": "collectives need other ranks",
}
"""Reasons why calls of other types are not run, for the message."""


def find_device_function(scope: str, api: str) -> Callable[..., Any]:
    """Return the function of MindSpore that the records ``{scope}.{api}.{count}`` are calls of.

    Raises:
        NotRun: APIs of this type are not run, or this MindSpore has no such function.
    """
    if scope not in PLACES:
        raise NotRun(f"{scope} is not run alone: {UNCHECKED_REASONS.get(scope, 'no reference is known for it')}. SKIP.")
    if api in rules("not_run"):
        raise NotRun(f"{scope}.{api} is not run: its output is uninitialised memory. SKIP.")
    attribute = _find_attribute(_place(PLACES[scope][0]), api)
    if callable(attribute) and not _may_be_named(f"{scope}.{api}"):
        raise NotRun(describe_unknown_function(f"{scope}.{api}"))
    if not callable(attribute):
        import mindspore

        raise NotRun(f"{scope}.{api} is not there in MindSpore {mindspore.__version__}. SKIP.")
    function: Callable[..., Any] = attribute
    return function


def _may_be_named(name: str) -> bool:
    """Return True for an API that computes: one that the recorder records, or that a table of names holds.

    Names come from files, and must not run functions of MindSpore that seed, save or load.
    """
    return name in rules("torch") or name in load_names().source.apis or name in _list_recorded_names()


@cache
def _list_recorded_names() -> frozenset[str]:
    """Return the names of all functions and methods that the recorder wraps in this MindSpore."""
    from probe_mindspore.capture.function_wrappers import list_patches

    return frozenset(patch.name for patch in list_patches())


def find_reference_function(scope: str, api: str, arguments: Arguments) -> Callable[..., Any]:
    """Return the function of torch that means the same as an API called with these arguments.

    Raises:
        NotRun: No such function is known.
    """
    import torch

    name = _resolve_overload(f"{scope}.{api}", arguments)
    if name in rules("differ"):
        raise NotRun(f"{name} means something else in torch: {rules('differ')[name]}. SKIP.")
    if name in rules("torch"):
        attribute = _find_attribute(torch, rules("torch")[name].removeprefix("torch."))
    elif scope in RENAMED_SCOPES:
        bare = load_names().source.apis.get(name, name if scope == "Tensor" else "").partition(".")[2]
        places = (torch.Tensor, torch) if scope == "Tensor" else (torch.nn.functional, torch, torch.Tensor)
        attributes = (getattr(place, bare, None) for place in places if bare)
        attribute = next(filter(None, attributes), None)
    else:
        attribute = _find_attribute(_place(PLACES[scope][1]), name.removeprefix(f"{scope}."))
    if not callable(attribute):
        raise NotRun(f"No counterpart of {name} is known in torch {torch.__version__}. SKIP.")
    function: Callable[..., Any] = attribute
    return function


def translate_arguments(scope: str, api: str, arguments: Arguments) -> Arguments:
    """Return the arguments for torch: the first tensors by position, the others by torch's keywords."""
    name = _resolve_overload(f"{scope}.{api}", arguments)
    positional, keywords = arguments.positional, dict(arguments.keywords)
    of_mindspore = load_names().source.arguments.get(name)
    of_torch = load_names().target.arguments.get(load_names().source.apis.get(name, ""), ())
    columns = rules("order").get(name) or ((of_mindspore or of_torch) if scope in RENAMED_SCOPES else ())
    torch_names = [_find_torch_name(column, of_torch) for column in columns]
    renamed = {part: torch_name for torch_name, column in zip(torch_names, columns) for part in column.split("|")}
    keywords = {renamed.get(key, key): value for key, value in keywords.items()}
    if 0 < len(positional) <= len(torch_names) and not columns[-1].endswith("*"):
        tensors = takewhile(lambda item: isinstance(item, TensorArgument), positional)
        positional_count = 1 if of_mindspore else sum(1 for _ in tensors)
        keywords = dict(zip(torch_names[positional_count:], positional[positional_count:])) | keywords
        positional = positional[:positional_count]
    if name in rules("dtypes_as_texts"):
        positional, keywords = map_leaves(positional, _parse_dtype), map_leaves(keywords, _parse_dtype)
    default = rules("defaults").get(name)
    if default is not None and len(arguments.positional) <= default["position"]:
        keywords.setdefault(default["keyword"], default["value"])
    return Arguments(positional, keywords)


@cache
def load_names() -> NameTable:
    """Return the table of names of both frameworks."""
    return load_table()


def _resolve_overload(name: str, arguments: Arguments) -> str:
    """Return the API that is called with these arguments; some names mean another API with more arguments."""
    overload = load_names().source.overloads.get(name)
    if overload is None:
        return name
    others = sum(
        not isinstance(item, TensorArgument) for item in iterate_leaves((arguments.positional, arguments.keywords))
    )
    return overload.api if others > overload.above else name


def _parse_dtype(item: Any) -> Any:
    """Return a dtype for a text that names one; anything else unchanged."""
    is_dtype = isinstance(item, str) and parse_dtype_name(item) in STORAGE_DTYPES
    return DType(parse_dtype_name(item)) if is_dtype else item


def _find_torch_name(joined_names: str, of_torch: Sequence[str]) -> str:
    """Return torch's name of an argument, of several joined by ``|``; the first if torch has none of them."""
    torch_names = {part for column in of_torch for part in column.rstrip("*").split("|")}
    parts = joined_names.rstrip("*").split("|")
    return next((part for part in parts if part in torch_names), parts[0])


def is_in_place(api: str) -> bool:
    """Return True if an API writes into its first argument."""
    in_place = api.startswith("__i") and api.endswith("__") and api not in ("__init__", "__int__", "__invert__")
    return in_place or api == "__setitem__" or (api.endswith("_") and not api.endswith("__"))


def _place(address: str) -> Any:
    """Return the module or class with this dotted name."""
    try:
        return importlib.import_module(address)
    except ModuleNotFoundError:
        module, _, name = address.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _find_attribute(place: Any, dotted: str) -> Any:
    """Return an attribute by its dotted name; None if there is none."""
    for part in dotted.split("."):
        place = getattr(place, part, None)
    return place
