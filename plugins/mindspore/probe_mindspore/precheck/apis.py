"""From the name of a record to the functions that it is a call of: MindSpore's and torch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from probe_matching import NameTable
from probe_precheck import NotRun, unknown_function

from probe_mindspore.names import table
from probe_mindspore.precheck.rules import rules
from probe_mindspore.precheck.tensors import STORED, Arguments, DType, Made, dtype_name, leaves, mapped

PLACES = {
    "Mint": ("mindspore.mint", "torch"),
    "MintFunctional": ("mindspore.mint.nn.functional", "torch.nn.functional"),
    "Tensor": ("mindspore.Tensor", "torch.Tensor"),
    "Functional": ("mindspore.ops", ""),
}
"""Where the APIs of a type lie, and those of torch by the same names."""
RENAMED = ("Functional", "Tensor")
"""Types whose functions may name and order their arguments otherwise than torch."""
WHY_NOT = {
    "Primitive": "what a primitive was built with is not recorded",
    "Cell": "a Cell is no single API; the APIs that it calls are checked one by one",
    "Jit": "a compiled graph is no single API",
    "Distributed": "collectives need other ranks",
    "MintDistributed": "collectives need other ranks",
}
"""Why calls of other types have no reference."""


def device_function(scope: str, api: str) -> Callable[..., Any]:
    """The function of MindSpore that the calls ``{scope}.{api}.{count}`` are calls of.

    Raises:
        NotRun: The type is none that is run, or this MindSpore has no such function.
    """
    if scope not in PLACES:
        raise NotRun(f"{scope} is not run alone: {WHY_NOT.get(scope, 'no reference is known for it')}. SKIP.")
    if api in rules("not_run"):
        raise NotRun(f"{scope}.{api} is not run: nobody computes what it gives out. SKIP.")
    found = _within(_place(PLACES[scope][0]), api)
    if callable(found) and not _may_be_named(f"{scope}.{api}"):
        raise NotRun(unknown_function(f"{scope}.{api}"))
    if not callable(found):
        import mindspore

        raise NotRun(f"{scope}.{api} is not there in MindSpore {mindspore.__version__}. SKIP.")
    function: Callable[..., Any] = found
    return function


def _may_be_named(name: str) -> bool:
    """Return True for what computes: what the recorder records, and what our tables of names hold.

    Names come from files, and modules of MindSpore hold functions that seed, save and load.
    """
    return name in rules("torch") or name in names().source.apis or name in _recorded()


@cache
def _recorded() -> frozenset[str]:
    """The names of all functions and methods that the recorder wraps in this MindSpore."""
    from probe_mindspore.capture.functions import known

    return frozenset(patch.name for patch in known())


def reference_function(scope: str, api: str, arguments: Arguments) -> Callable[..., Any]:
    """The function of torch that means the same, called with these arguments.

    Raises:
        NotRun: None is known.
    """
    import torch

    name = _called(f"{scope}.{api}", arguments)
    if name in rules("differ"):
        raise NotRun(f"{name} is not what torch has by that name: {rules('differ')[name]}. SKIP.")
    if name in rules("torch"):
        found = _within(torch, rules("torch")[name].removeprefix("torch."))
    elif scope in RENAMED:
        bare = names().source.apis.get(name, name if scope == "Tensor" else "").partition(".")[2]
        places = (torch.Tensor, torch) if scope == "Tensor" else (torch.nn.functional, torch, torch.Tensor)
        found = next((one for place in places if bare and (one := getattr(place, bare, None))), None)
    else:
        found = _within(_place(PLACES[scope][1]), name.removeprefix(f"{scope}."))
    if not callable(found):
        raise NotRun(f"No counterpart of {name} is known in torch {torch.__version__}. SKIP.")
    function: Callable[..., Any] = found
    return function


def reference_arguments(scope: str, api: str, arguments: Arguments) -> Arguments:
    """The arguments as torch spells them: the first tensors by position, the others by torch's keywords."""
    name = _called(f"{scope}.{api}", arguments)
    positional, keywords = arguments.positional, dict(arguments.keywords)
    ours = names().source.arguments.get(name)
    theirs = names().target.arguments.get(names().source.apis.get(name, ""), ())
    columns = rules("order").get(name) or ((ours or theirs) if scope in RENAMED else ())
    words = [_torchs(column, theirs) for column in columns]
    own = {part: word for word, column in zip(words, columns) for part in column.split("|")}
    keywords = {own.get(key, key): value for key, value in keywords.items()}
    if 0 < len(positional) <= len(words) and not columns[-1].endswith("*"):
        kept = 1 if ours else sum(1 for _ in takewhile(lambda item: isinstance(item, Made), positional))
        keywords = dict(zip(words[kept:], positional[kept:])) | keywords
        positional = positional[:kept]
    if name in rules("dtypes_as_texts"):
        positional, keywords = mapped(positional, _dtype), mapped(keywords, _dtype)
    default = rules("defaults").get(name)
    if default is not None and len(arguments.positional) <= default["position"]:
        keywords.setdefault(default["keyword"], default["value"])
    return Arguments(positional, keywords)


@cache
def names() -> NameTable:
    """The names of both frameworks."""
    return table()


def _called(name: str, arguments: Arguments) -> str:
    """The API that is called with these arguments, for some are another one with more of them."""
    overload = names().source.overloads.get(name)
    if overload is None:
        return name
    beside = sum(not isinstance(item, Made) for item in leaves((arguments.positional, arguments.keywords)))
    return overload.api if beside > overload.above else name


def _dtype(item: Any) -> Any:
    """A dtype where a text names one."""
    is_dtype = isinstance(item, str) and dtype_name(item) in STORED
    return DType(dtype_name(item)) if is_dtype else item


def _torchs(word: str, theirs: Sequence[str]) -> str:
    """Of the names of one argument, joined by ``|``, torch's own; the first where torch has none of them."""
    known = {part for column in theirs for part in column.rstrip("*").split("|")}
    parts = word.rstrip("*").split("|")
    return next((part for part in parts if part in known), parts[0])


def writes(api: str) -> bool:
    """Does the API write into its first argument?"""
    in_place = (
        api.startswith("__i") and api.endswith("__") and api not in ("__init__", "__int__", "__invert__")
    )
    return in_place or api == "__setitem__" or (api.endswith("_") and not api.endswith("__"))


def _place(address: str) -> Any:
    try:
        return importlib.import_module(address)
    except ModuleNotFoundError:
        module, _, name = address.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _within(place: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        place = getattr(place, part, None)
    return place
