"""Uses of torch's private API by the dispatch check, each with a test that names the version of torch."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import _C

MODULE_CALL = frozenset(
    code
    for name in ("_call_impl", "_slow_forward")
    if (code := getattr(getattr(torch.nn.Module, name, None), "__code__", None)) is not None
)
"""Code of torch that calls the forward of a module, whose local variable ``self`` is the module."""

_ENGINE = frozenset({"_engine_run_backward", "backward", "grad"})
_ENGINE_FILES = ("/torch/autograd/graph.py", "/torch/autograd/__init__.py")

_current_node: Callable[[], Any] = getattr(_C, "_current_autograd_node", lambda: None)


class Node(NamedTuple):
    """Autograd node that runs.

    Attributes:
        name: Its name, such as ``AddmmBackward0``.
        number: Its sequence number.
        is_custom: True for the backward of a ``torch.autograd.Function``.
    """

    name: str
    number: int
    is_custom: bool


def running_node() -> Node | None:
    """Return the autograd node that runs in this thread; None if there is none, or torch does not tell it."""
    node = _current_node()
    if node is None:
        return None
    is_custom = isinstance(node, torch.autograd.function.BackwardCFunction)
    return Node(str(node.name()), int(node._sequence_nr()), is_custom)


def is_engine(frame: FrameType) -> bool:
    """Return True for the frame that started the backward pass of this thread."""
    code = frame.f_code
    return code.co_name in _ENGINE and code.co_filename.replace("\\", "/").endswith(_ENGINE_FILES)


def find_calling_module(frame: FrameType) -> torch.nn.Module | None:
    """Return the module whose call the frame is; None for other frames."""
    if frame.f_code not in MODULE_CALL:
        return None
    module = frame.f_locals.get("self")
    return module if isinstance(module, torch.nn.Module) else None


def has_cpu_kernel(operator: str) -> bool:
    """Return True if an operator, such as ``aten::mm``, can run on the CPU."""
    return bool(_C._dispatch_has_computed_kernel_for_dispatch_key(operator, "CPU"))
