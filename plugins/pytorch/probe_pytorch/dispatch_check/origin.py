"""Places in the program that call operators, and the forward calls that a backward belongs to."""

from __future__ import annotations

import weakref
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import NamedTuple

import torch
from probe_recording.sites import STAND_IN

from probe_pytorch import compat_dispatch
from probe_pytorch.capture.callers import TORCH_DIRECTORY
from probe_pytorch.dispatch_check.findings import CallOrigin

PLUGIN_DIRECTORY = str(Path(__file__).parents[1])
MAX_FORWARD_CALLS = 1 << 17
"""Number of autograd nodes whose forward call is remembered; the oldest are forgotten first."""


class ForwardCall(NamedTuple):
    """Call of an operator outside of backward passes.

    Attributes:
        name: The name of the call.
        operator: The name of the operator, without underscores.
        origin: The place in the program.
    """

    name: str
    operator: str
    origin: CallOrigin


class StackFacts(NamedTuple):
    """Facts of the Python stack of a call.

    Attributes:
        origin: The place in the program.
        is_in_engine: True if no code of the program is between the call and the start of the backward.
    """

    origin: CallOrigin
    is_in_engine: bool


Names = weakref.WeakKeyDictionary[torch.nn.Module, str]
_names: weakref.WeakKeyDictionary[torch.nn.Module, Names] = weakref.WeakKeyDictionary()


def read_stack(frame: FrameType | None) -> StackFacts:
    """Return the place in the program of a call, from the stack of ``frame`` outwards.

    Args:
        frame: The innermost frame.
    """
    file, line = "", 0
    inner: torch.nn.Module | None = None
    outer: torch.nn.Module | None = None
    is_in_engine = False
    while frame is not None:
        if not file and compat_dispatch.is_engine(frame):
            is_in_engine = True
        name = frame.f_code.co_filename
        if not file and not name.startswith((TORCH_DIRECTORY, PLUGIN_DIRECTORY)) and frame.f_code.co_name != STAND_IN:
            file, line = name, frame.f_lineno or 0
        module = compat_dispatch.called_module(frame)
        if module is not None:
            inner, outer = inner or module, module
        frame = frame.f_back
    if inner is None or outer is None:
        return StackFacts(CallOrigin(file=file, line=line), is_in_engine)
    return StackFacts(CallOrigin(_find_module_path(outer, inner), type(inner).__name__, file, line), is_in_engine)


def _find_module_path(outer: torch.nn.Module, inner: torch.nn.Module) -> str:
    """Return the path of a module within another, or an empty text if it is not part of it."""
    names = _names.get(outer)
    if names is None or inner not in names:
        names = _names[outer] = weakref.WeakKeyDictionary()
        for name, module in outer.named_modules():
            names[module] = name
        names.setdefault(inner, "")
    return names[inner]


class ForwardCalls:
    """Forward calls by the sequence number of the autograd node that they made."""

    def __init__(self) -> None:
        self._calls: dict[int, ForwardCall] = {}
        self._lock = Lock()

    def note(self, first: int, end: int, call: ForwardCall) -> None:
        """Remember the call that made the nodes from ``first`` up to but without ``end``."""
        with self._lock:
            for number in range(max(first, end - 64), end):
                self._calls.pop(number, None)
                self._calls[number] = call
            while len(self._calls) > MAX_FORWARD_CALLS:
                del self._calls[next(iter(self._calls))]

    def find_call(self, node: compat_dispatch.Node | None) -> ForwardCall | None:
        """Return the forward call of a node; None if it is not known for certain.

        Sequence numbers of different threads may be equal, so the names must fit as well.
        """
        call = None if node is None else self._calls.get(node.number)
        if call is None or node is None:
            return None
        operator = node.name.rpartition("Backward")[0].lower()
        fits = call.operator.startswith(operator) or operator.startswith(call.operator)
        return call if node.is_custom or (operator and fits) else None


def normalize_operator_name(operator: str) -> str:
    """Return the name of an operator as names of autograd nodes have it: without underscores."""
    return operator.replace("_", "").lower()
