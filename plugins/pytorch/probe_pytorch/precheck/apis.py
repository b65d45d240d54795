"""From the name of a record to the function of torch that it is a call of."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from probe_precheck import unknown_function

from probe_pytorch import compat
from probe_pytorch.precheck.pure import is_pure
from probe_pytorch.precheck.rules import rules

PLACES: dict[str, Callable[[], Any]] = {
    "Functional": lambda: torch.nn.functional,
    "Tensor": lambda: torch.Tensor,
    "Torch": lambda: torch,
    "VF": lambda: compat.low_level_functions(),
    "Aten": lambda: torch.ops.aten,
}
NPU = "NPU"
LISTS = {"Functional": "functional", "Tensor": "tensor", "Torch": "torch", "VF": "_VF", "NPU": "torch_npu"}
"""The sections of the list of recorded APIs, by the first part of a record's name."""
OLD_NAMES = {"__idiv__": "__itruediv__", "__div__": "__truediv__", "__rdiv__": "__rtruediv__"}


class NoSuchApi(Exception):
    """A record of an API that this torch does not have, or that cannot be run alone."""


def function_of(scope: str, api: str) -> Callable[..., Any]:
    """The function that the calls ``{scope}.{api}.{count}`` are calls of.

    Raises:
        NoSuchApi: The scope is none that is run, or torch has no such function.
    """
    if scope == NPU:
        place = _npu()
        if place is None:
            raise NoSuchApi("torch_npu is not installed here.")
    elif scope in PLACES:
        place = PLACES[scope]()
    else:
        raise NoSuchApi(f"API type {scope} is not supported for run ut. SKIP.")
    found = place
    for part in api.split("."):
        if part.startswith("_") and part in OLD_NAMES and not hasattr(found, part):
            part = OLD_NAMES[part]
        found = getattr(found, part, None)
    if callable(found) and not is_operator(scope, api, found):
        raise NoSuchApi(unknown_function(f"{scope}.{api}"))
    if not callable(found):
        raise NoSuchApi(f"{scope}.{api} is not there in torch {torch.__version__}. SKIP.")
    function: Callable[..., Any] = found
    return function


def is_operator(scope: str, api: str, function: Any) -> bool:
    """Return True if a record may name the function: it computes with tensors, and does nothing else.

    Names come from files, and ``torch.os.system`` is callable. These may be named: what the recorder lists,
    what ``rules.yaml`` lists under ``runs``, the functions of ``torch.nn.functional`` that take tensors, and
    what the registry of torch knows as an operator that computes.
    """
    space, dot, name = api.rpartition(".")
    if dot and not (scope == "Torch" and space in rules("namespaces")):
        return scope == NPU and api in _listed(LISTS[NPU])
    if scope == "Aten":
        return is_pure(api)
    if api in _listed(LISTS[scope]) or api in rules("runs").get(scope, ()):
        return True
    if scope == NPU or name.startswith("_"):
        return False
    if scope == "Functional":
        return _is_overridable(function)
    is_known = compat.is_torch_function(api) or _is_overridable(function)
    return is_known and is_pure(api.replace(".", "_"))


def _is_overridable(function: Any) -> bool:
    try:
        return function in _overridable()
    except TypeError:  # cannot be hashed
        return False


@cache
def _listed(section: str) -> frozenset[str]:
    """The APIs that can be recorded."""
    import yaml

    text = (files("probe_pytorch") / "capture" / "support_wrap_ops.yaml").read_text("utf-8")
    return frozenset(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)).get(section) or ())


@cache
def _overridable() -> frozenset[Any]:
    """All functions that compute with tensors, as torch lists them for ``__torch_function__``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return frozenset(
            one for found in torch.overrides.get_overridable_functions().values() for one in found
        )


def has_npu_function(api: str) -> bool:
    """Is there a function of that name in an installed torch_npu?"""
    return callable(getattr(_npu(), api, None))


def _npu() -> Any:
    try:
        return importlib.import_module("torch_npu")
    except ImportError:
        return None
