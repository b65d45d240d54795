"""From the name of a record to the function of torch that it is a call of."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

PLACES: dict[str, Callable[[], Any]] = {
    "Functional": lambda: torch.nn.functional,
    "Tensor": lambda: torch.Tensor,
    "Torch": lambda: torch,
    "VF": lambda: torch._VF,
    "Aten": lambda: torch.ops.aten,
}
NPU = "NPU"
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
    if not callable(found):
        raise NoSuchApi(f"{scope}.{api} is not there in torch {torch.__version__}. SKIP.")
    function: Callable[..., Any] = found
    return function


def has_npu_function(api: str) -> bool:
    """Is there a function of that name in an installed torch_npu?"""
    return callable(getattr(_npu(), api, None))


def _npu() -> Any:
    try:
        return importlib.import_module("torch_npu")
    except ImportError:
        return None
