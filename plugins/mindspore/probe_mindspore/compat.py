"""All private API of MindSpore that the recorder uses, written for 2.10.

MindSpore 2.7 has no nodes of the graph to look at (``Tensor._grad_node``): there no backward is seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops.composite import base
from probe_recording import Stack, frames_of

Node = Any
"""A node of the autograd graph."""

ORIGINAL = "__probe_original__"
"""The attribute of a wrapper that holds what it wraps."""

LEAF_NUMBER = 2**63
"""Nodes of inputs and parameters are numbered above this."""


def has_nodes() -> bool:
    """Can gradients of single calls be seen with this MindSpore?"""
    return hasattr(Tensor, "_grad_node")


def node_of(tensor: Any) -> Node:
    """The node that made ``tensor``; None where no gradient is wanted."""
    return getattr(tensor, "_grad_node", None)


def place_of(tensor: Any) -> int:
    """Which output of its node a tensor is."""
    return int(tensor._output_index)


def identity(node: Node) -> int:
    """What tells a node from others, as long as it lives: each look at it makes another object."""
    return int(node._unique_id())


def number_of(node: Node) -> int:
    """The number of a node, in the order in which they were made; 0 for inputs and parameters."""
    number = int(node._sequence_nr())
    return 0 if number >= LEAF_NUMBER else number + 1


def edges_of(node: Node) -> list[tuple[Node, int]]:
    """Where the gradients go that a node gives out: the next node and which of its outputs, or None."""
    return [(following, int(place)) for following, place in node.next_functions]


def no_grad() -> AbstractContextManager[Any]:
    """Nothing computed inside is part of the graph."""
    try:
        from mindspore.graph.api import _no_grad
    except ImportError:  # before 2.9
        try:
            from mindspore.common.api import _no_grad
        except ImportError:
            return nullcontext()
    found: AbstractContextManager[Any] = _no_grad()
    return found


def primitive_classes() -> list[type]:
    """The classes of primitives that say themselves what calling one does."""
    found: list[type] = []
    waiting: list[type] = [ops.Primitive]
    seen = set(waiting)
    while waiting:
        kind = waiting.pop()
        if "__call__" in vars(kind):
            found.append(kind)
        child: type
        for child in kind.__subclasses__():
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return found


def primitives_of(cell: nn.Cell) -> dict[str, Any]:
    """The primitives that are attributes of ``cell``."""
    return dict(getattr(cell, "_primitives", None) or {})


def primitive_name(primitive: Any) -> str:
    """What a primitive calls itself."""
    return str(getattr(primitive, "name", None) or type(primitive).__name__)


def hook_forward(cell: nn.Cell, before: Callable[..., None], after: Callable[..., None]) -> list[Any]:
    """Hook a Cell with keywords seen, and where possible its end by an exception too."""
    handles = [cell.register_forward_pre_hook(before, with_kwargs=True)]
    try:
        handles.append(cell.register_forward_hook(after, with_kwargs=True, always_call=True))
    except TypeError:  # MindSpore 2.7
        handles.append(cell.register_forward_hook(after, with_kwargs=True))
    return handles


def is_compiled_mode() -> bool:
    """Is the whole program compiled (GRAPH_MODE)?"""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


_RECOMPUTE = "/mindspore/common/recompute.py"
_AGAIN = ("bprop", "recompute")


def is_recompute(stack: Stack) -> bool:
    """Does activation recomputation run this call a second time?"""
    return any(name in _AGAIN and file.endswith(_RECOMPUTE) for file, name in frames_of(stack))


class Eager:
    """``jit`` functions run as they are written (the documented ``MS_JIT=0``), but for what needs a graph.

    Args:
        blind: Called around what is compiled all the same, for a compiler must not meet what is
            patched; it returns what undoes it.
    """

    def __init__(self, blind: Callable[[], Callable[[], None]]) -> None:
        self._blind = blind
        self._stood: str | None = None
        self._vmap: Any = None

    def install(self) -> None:
        """From now on."""
        if self._vmap is not None:
            return
        self._stood = os.environ.get("MS_JIT")
        os.environ["MS_JIT"] = "0"
        self._vmap = stood = base._Vmap.__call__

        def call(vmap: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            mapped = stood(vmap, getattr(function, ORIGINAL, function), *args, **kwargs)

            def run(*values: Any, **keywords: Any) -> Any:
                with self._compiled():
                    return mapped(*values, **keywords)

            return run

        base._Vmap.__call__ = call

    def remove(self) -> None:
        """As it was before."""
        if self._vmap is None:
            return
        base._Vmap.__call__, self._vmap = self._vmap, None
        self._set(self._stood)

    @contextmanager
    def _compiled(self) -> Iterator[None]:
        """Compiled as ever, and seen by nobody."""
        if self._vmap is None:  # the recording is over
            yield
            return
        back = self._blind()
        self._set(self._stood)
        try:
            yield
        finally:
            os.environ["MS_JIT"] = "0"
            back()

    @staticmethod
    def _set(value: str | None) -> None:
        if value is None:
            os.environ.pop("MS_JIT", None)
        else:
            os.environ["MS_JIT"] = value


TENSORS = (Tensor, Parameter)
"""The classes that have the methods of tensors; neither inherits from the other."""


def wait_for(tensors: list[Any]) -> None:
    """Let what makes ``tensors`` come to an end, so that its errors are raised here.

    A CPU knows no ``synchronize``; there, looking at a value waits, and costs no copy.
    """
    if mindspore.get_context("device_target") != "CPU":
        mindspore.runtime.synchronize()
        return
    for tensor in tensors:
        if 0 in tensor.shape or getattr(tensor, "has_init", False):
            continue
        try:
            tensor.asnumpy()
        except TypeError:  # bfloat16 with numpy 2
            tensor.float().asnumpy()
        return
