"""From the name of a record to the functions that it is a call of: MindSpore's and torch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from probe_mindspore.precheck.rules import rules
from probe_mindspore.precheck.tensors import Arguments, Made, leaves

PLACES = {
    "Mint": ("mindspore.mint", "torch"),
    "MintFunctional": ("mindspore.mint.nn.functional", "torch.nn.functional"),
    "Tensor": ("mindspore.Tensor", "torch.Tensor"),
    "Functional": ("mindspore.ops", ""),
}
"""Where the APIs of a type lie, and those of torch by the same names."""
RENAMED = ("Functional", "Tensor")
WHY_NOT = {
    "Primitive": "what a primitive was built with is not recorded",
    "Cell": "a Cell is no single API; the APIs that it calls are checked one by one",
    "Jit": "a compiled graph is no single API",
    "Distributed": "collectives need other ranks",
    "MintDistributed": "collectives need other ranks",
}
"""Why calls of other types have no reference."""


class NotRun(Exception):
    """A call that is left out, and why."""


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
    if not callable(found):
        import mindspore

        raise NotRun(f"{scope}.{api} is not there in MindSpore {mindspore.__version__}. SKIP.")
    function: Callable[..., Any] = found
    return function


def reference_function(scope: str, api: str, arguments: Arguments) -> Callable[..., Any]:
    """The function of torch that means the same, called with these arguments.

    Raises:
        NotRun: None is known.
    """
    import torch

    name = f"{scope}.{api}"
    if name in rules("differ"):
        raise NotRun(f"{name} is not what torch has by that name: {rules('differ')[name]}. SKIP.")
    overload = rules("overloads").get(name)
    if overload is not None and _values(arguments) > overload["above"]:
        found = _within(torch, overload["torch"])
    elif name in rules("torch"):
        found = _within(torch, rules("torch")[name].removeprefix("torch."))
    elif scope == "Functional":
        known = api in rules("functional")
        found = getattr(torch.nn.functional, api, None) or getattr(torch, api, None) if known else None
    else:
        found = _within(_place(PLACES[scope][1]), api)
    if not callable(found):
        raise NotRun(f"No counterpart of {name} is known in torch {torch.__version__}. SKIP.")
    function: Callable[..., Any] = found
    return function


def reference_arguments(scope: str, api: str, arguments: Arguments) -> Arguments:
    """The arguments as torch spells them."""
    positional, keywords = arguments.positional, dict(arguments.keywords)
    if scope in RENAMED:
        renamed: Mapping[str, str] = rules("keywords")
        keywords = {renamed.get(key, key): value for key, value in keywords.items()}
    order = rules("order").get(f"{scope}.{api}", ())
    if order:
        keywords = dict(zip(order[1:], positional[1:])) | keywords
        positional = positional[:1] + positional[len(order) :]
    default = rules("defaults").get(f"{scope}.{api}")
    if default is not None and len(arguments.positional) <= default["position"]:
        keywords.setdefault(default["keyword"], default["value"])
    return Arguments(positional, keywords)


def _values(arguments: Arguments) -> int:
    """How many values there are beside tensors, those of tuples one by one."""
    return sum(not isinstance(item, Made) for item in leaves((arguments.positional, arguments.keywords)))


def is_random(api: str, arguments: Arguments) -> bool:
    """Does the call draw random numbers?"""
    return api in rules("random") and arguments.keywords.get("training", True) is not False


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
