"""The gradients of one call, exactly, without changing the graph.

The nodes that a call created lie between its outputs and its inputs. Their hooks see the gradient
of each output as it comes in and the call's own share of the gradient of each input as it goes out,
before it is added to what other uses of the same tensor give. No alias, view or hook of a module is
put in the way: sums are formed by autograd in the order they always were.

Where one node is the whole call, its gradients stand in that node's own order, as the peer writes
them (spec/dump 5.3, 6). Where a call made several nodes, they stand in the order of the arguments;
the peer then writes what leaves the last node, which is no gradient of any argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from probe_recording import Arrived, Gathering
from torch.utils.hooks import unserializable_hook

from probe_pytorch import compat

Node = Any
"""A node of the autograd graph."""

PASSED_THROUGH = frozenset({"TBackward0", "ToCopyBackward0"})
"""Nodes that only hand a tensor on: linear transposes its weight, autocast converts what comes in.

The gradient is told in front of them, transposed or in the dtype of the computation, as by the peer.
"""

LARGEST_WALK = 1_000_000


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors that need a gradient, in the order of the arguments, through lists, tuples and dicts."""
    found: list[torch.Tensor] = []
    _gather(values, found, 0)
    return found


def _gather(values: Iterable[Any], found: list[torch.Tensor], depth: int) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                found.append(value)
        elif isinstance(value, (list, tuple)):
            if depth < 8:
                _gather(
                    tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value),
                    found,
                    depth + 1,
                )
        elif isinstance(value, dict) and depth < 8:
            _gather(dict.values(value), found, depth + 1)
        elif hasattr(type(value), "__dataclass_fields__") and depth < 8:
            _gather(
                (getattr(value, name, None) for name in type(value).__dataclass_fields__), found, depth + 1
            )


class Source:
    """Where the gradient of an input goes: the node and position behind it, taken before the call.

    Taken before, because a call in place moves its input to another node.
    """

    __slots__ = ("leaf", "node", "position")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.node: Node = tensor.grad_fn
        self.position = tensor.output_nr
        self.leaf = id(tensor) if self.node is None else 0


def sources_of(values: Iterable[Any]) -> list[Source]:
    """The sources of all tensors that need a gradient."""
    return [Source(tensor) for tensor in tensors_in(values)]


def attach_api(
    outputs: Sequence[Any], sources: Sequence[Source], arrived: Callable[[], Arrived], first_new: int
) -> bool:
    """Have the gradients of an API call told as they arrive; False where there will be none.

    Args:
        outputs: What the call returned.
        sources: Where its inputs come from.
        arrived: Makes the receiver, once there is something to receive.
        first_new: The number of the first node that the call can have made.
    """
    node = next((t.grad_fn for t in tensors_in(outputs) if t.grad_fn is not None), None)
    if node is None or not sources:
        return False
    own = {id(source.node) for source in sources if source.node is not None}
    if id(node) in own:
        return False  # an output that is an input: nothing was computed
    if _is_whole(node, own):
        tell = arrived()

        def both(gradients: tuple[Any, ...], incoming: tuple[Any, ...]) -> None:
            for position, gradient in enumerate(incoming):
                tell("input", position, gradient, False)
            last = len(gradients) - 1
            for position, gradient in enumerate(gradients):
                tell("output", position, gradient, position == last)
            if last < 0:
                tell("output", -1, None, True)

        node.register_hook(both)
        return True
    _attach_walked(outputs, sources, arrived(), first_new)
    return True


def _is_whole(node: Node, own: set[int]) -> bool:
    """Do all edges of ``node`` leave the call, through what only hands a tensor on at most?"""
    for following, _ in node.next_functions:
        if following is None or id(following) in own or hasattr(following, "variable"):
            continue
        if following.name() not in PASSED_THROUGH or not _is_whole(following, own):
            return False
    return True


def attach_walked(
    outputs: Sequence[Any], sources: Sequence[Source], arrived: Callable[[], Arrived], first_new: int
) -> bool:
    """Have the gradients of a module's call told as they arrive, in the order of its tensors."""
    if not any(t.grad_fn is not None for t in tensors_in(outputs)):
        return False
    _attach_walked(outputs, sources, arrived(), first_new)
    return True


def _attach_walked(outputs: Sequence[Any], sources: Sequence[Source], tell: Arrived, first_new: int) -> None:
    gathering = _Gathering(tell, len(sources))
    roots: list[Node] = []
    own = {
        (id(source.node), source.position): i for i, source in enumerate(sources) if source.node is not None
    }
    for position, tensor in enumerate(outputs):
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            same = own.get((id(tensor.grad_fn), tensor.output_nr), -1)
            if same < 0:
                roots.append(tensor.grad_fn)
            tensor.register_hook(unserializable_hook(gathering.output(position, same)))
    for node, places in _edges(roots, sources, first_new).items():
        node.register_hook(gathering.inputs(places))
    gathering.ready()


def _edges(roots: list[Node], sources: Sequence[Source], first_new: int) -> dict[Node, list[tuple[int, int]]]:
    """Nodes whose edges lead to inputs of the call: (position of the edge, number of the input)."""
    wanted = {
        (source.node, source.position): i for i, source in reversed(list(enumerate(sources))) if source.node
    }
    leaves = {source.leaf: i for i, source in reversed(list(enumerate(sources))) if source.leaf}
    found: dict[Node, list[tuple[int, int]]] = {}
    seen = set(roots)
    waiting = list(seen)
    while waiting and len(seen) < LARGEST_WALK:
        node = waiting.pop()
        for position, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            place = wanted.get((following, number))
            if place is None:
                variable = getattr(following, "variable", None)
                if variable is not None:
                    place = leaves.get(id(variable))
                    if place is None:
                        continue
            if place is not None:
                found.setdefault(node, []).append((position, place))
            elif following not in seen and compat.number_of(following) >= first_new:
                seen.add(following)
                waiting.append(following)
    return found


class _Gathering(Gathering):
    """Adds up gradients where they are."""

    def _added(self, total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.detach()
        with compat.quiet():
            return gradient.clone() if total is None else total + gradient

    def _whole(self, total: torch.Tensor | None, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return total
        return gradient.detach() if total is None else self._added(total, gradient)
