"""Recording of the exact gradients of one call without changing the autograd graph.

The nodes that a call created lie between its outputs and its inputs. Hooks on them receive the gradient of
each output and the call's own part of the gradient of each input, before autograd adds the parts of other
uses of the same tensor. Nothing is inserted into the graph, so autograd forms sums in the same order as
without the recorder.

If a call made a single node, its gradients are recorded in the order of that node, as msprobe does. If it
made several nodes, they are recorded in the order of the arguments; msprobe records the gradients that leave
the last node instead, which belong to no argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from probe_recording import SCALARS, Arrived, Backward, Gathering, tell_each

from probe_pytorch import compat, compat_hooks
from probe_pytorch.statistics import PLAIN

Node = Any
"""A node of the autograd graph."""

PASSED_THROUGH = frozenset({"TBackward0", "ToCopyBackward0"})
"""Nodes that only pass a tensor on: linear transposes its weight, autocast converts its inputs.

The gradient is recorded before it passes through them (transposed, or in the dtype of the computation), as
msprobe does.
"""

LARGEST_WALK = 1_000_000


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors that need a gradient, in the order of the arguments.

    Lists, tuples, dicts and dataclasses are searched up to a depth of 8.
    """
    tensors: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            if value.requires_grad:
                tensors.append(value)
        elif value is not None and kind not in SCALARS:
            _gather((value,), tensors, 0)
    return tensors


def _gather(values: Iterable[Any], tensors: list[torch.Tensor], depth: int) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                tensors.append(value)
        elif isinstance(value, (list, tuple)):
            if depth < 8:
                _gather(
                    tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value),
                    tensors,
                    depth + 1,
                )
        elif isinstance(value, dict) and depth < 8:
            _gather(dict.values(value), tensors, depth + 1)
        elif hasattr(type(value), "__dataclass_fields__") and depth < 8:
            _gather(
                (getattr(value, name, None) for name in type(value).__dataclass_fields__), tensors, depth + 1
            )


class Source:
    """The place in the graph that receives the gradient of an input: a node and a position, or a leaf.

    It is taken before the call, because an in-place call moves its input to another node.
    """

    __slots__ = ("leaf", "node", "position")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.node: Node = tensor.grad_fn
        self.position = tensor.output_nr
        self.leaf = id(tensor) if self.node is None else 0


def sources_of(values: Iterable[Any]) -> list[Source]:
    """Return the sources of all tensors that need a gradient."""
    return [Source(tensor) for tensor in tensors_in(values)]


def attach_api(
    outputs: Sequence[Any], sources: Sequence[Source], arrived: Callable[[], Arrived], first_new: int
) -> bool:
    """Install hooks that report the gradients of an API call.

    Args:
        outputs: The results of the call.
        sources: The sources of its inputs.
        arrived: A factory of the receiver, called only if there will be gradients.
        first_new: The sequence number of the first node that the call can have created.

    Returns:
        False if there will be no gradients.
    """
    if not sources:
        return False
    for tensor in tensors_in(outputs):
        node = tensor.grad_fn
        if node is not None:
            break
    else:
        return False
    own = {id(source.node) for source in sources if source.node is not None}
    if id(node) in own:
        return False  # the output is one of the inputs: nothing was computed
    if _is_whole(node, own):
        tell = arrived()
        node.register_hook(tell.take_node if isinstance(tell, Backward) else partial(tell_each, tell))
        return True
    _attach_walked(outputs, sources, arrived(), first_new)
    return True


def made_one_node(outputs: Sequence[Any], sources: Sequence[Source]) -> bool:
    """Return True if a call made one node, whose gradients are those of its arguments for every recorder."""
    nodes = {t.grad_fn for t in tensors_in(outputs) if t.grad_fn is not None}
    own = {id(source.node) for source in sources if source.node is not None}
    return len(nodes) == 1 and all(_is_whole(node, own) for node in nodes)


def _is_whole(node: Node, own: set[int]) -> bool:
    """Return True if all edges of ``node`` leave the call, if need be through nodes that pass a tensor on."""
    for following, _ in node.next_functions:
        if following is None or id(following) in own or hasattr(following, "variable"):
            continue
        if following.name() not in PASSED_THROUGH or not _is_whole(following, own):
            return False
    return True


def attach_walked(
    outputs: Sequence[Any], sources: Sequence[Source], arrived: Callable[[], Arrived], first_new: int
) -> bool:
    """Install hooks that report the gradients of a module's call, in the order of its tensors.

    Args:
        outputs: The tensors that the module returned.
        sources: The sources of its inputs.
        arrived: A factory of the receiver, called only if there will be gradients.
        first_new: The sequence number of the first node that the forward can have created.

    Returns:
        False if there will be no gradients.
    """
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
            compat_hooks.register_hook(tensor, gathering.output(position, same))
    for node, places in _edges(roots, sources, first_new).items():
        node.register_hook(gathering.inputs(places))
    gathering.ready()


def _edges(roots: list[Node], sources: Sequence[Source], first_new: int) -> dict[Node, list[tuple[int, int]]]:
    """Return the nodes whose edges lead to inputs: (position of the edge, number of the input) of each."""
    wanted: dict[Node, dict[int, int]] = {}
    leaves: dict[int, int] = {}
    for i, source in enumerate(sources):  # the first input of several that are the same tensor
        if source.node is not None:
            wanted.setdefault(source.node, {}).setdefault(source.position, i)
        else:
            leaves.setdefault(source.leaf, i)
    edges: dict[Node, list[tuple[int, int]]] = {}
    seen = set(roots)
    waiting = list(seen)
    number_of = compat.number_of
    while waiting and len(seen) < LARGEST_WALK:
        node = waiting.pop()
        for position, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            place = None
            if following in wanted:
                place = wanted[following].get(number)
            if place is None:
                if following in seen:
                    continue
                variable = getattr(following, "variable", None)
                if variable is not None:
                    place = leaves.get(id(variable))
                    if place is None:
                        continue
            if place is not None:
                edges.setdefault(node, []).append((position, place))
            elif number_of(following) >= first_new:
                seen.add(following)
                waiting.append(following)
    return edges


class _Gathering(Gathering):
    """A collector that adds up gradients on their device."""

    def _added(self, total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.detach()
        with compat.quiet():
            return gradient.clone() if total is None else total + gradient

    def _whole(self, total: torch.Tensor | None, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return total
        return gradient.detach() if total is None else self._added(total, gradient)
