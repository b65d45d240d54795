"""Gradients of the inputs and outputs of a module, read from the autograd graph without changing it.

torch's full backward hooks insert a function around a module, which changes the order in which gradients are
added. Here the hooks are on the graph nodes whose edges lead to the inputs, and on the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from probe_recording.capture.gathering import GradientCallback, GradientGatherer

MAX_GRAPH_NODES = 1_000_000
"""Number of graph nodes of a module that are searched."""


class ModuleInputSource:
    """The place in the graph that receives the gradient of an input: a node and a position, or a leaf.

    It is taken before the forward pass, because an in-place operation moves its input to another node.

    Args:
        tensor: The input.
    """

    __slots__ = ("leaf", "node", "position")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.node: Any = tensor.grad_fn
        self.position = tensor.output_nr
        self.leaf = id(tensor) if self.node is None else 0


class GradientSum(GradientGatherer):
    """A collector that adds up the gradients of several uses of an input."""

    def _add_gradient(self, total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.detach()
        return gradient.clone() if total is None else total + gradient


def attach_gradient_hooks(
    outputs: Sequence[Any], sources: Sequence[ModuleInputSource], receiver: GradientCallback
) -> None:
    """Report the gradients of a forward pass when they arrive.

    Args:
        outputs: The results of the module.
        sources: The places of its inputs that need a gradient.
        receiver: The receiver. Its sides are ``input`` for the gradient of an output, and ``output`` for that
            of an input, with their positions.
    """
    gathering = GradientSum(receiver, len(sources))
    source_numbers = {
        (id(source.node), source.position): i for i, source in enumerate(sources) if source.node is not None
    }
    roots = []
    for position, tensor in enumerate(outputs):
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            source_number = source_numbers.get((id(tensor.grad_fn), tensor.output_nr), -1)
            if source_number < 0:
                roots.append(tensor.grad_fn)
            tensor.register_hook(  # type: ignore[no-untyped-call]
                gathering.output(position, source_number)
            )
    for node, places in _find_input_edges(roots, sources).items():
        node.register_hook(gathering.inputs(places))


def _find_input_edges(roots: Sequence[Any], sources: Sequence[ModuleInputSource]) -> dict[Any, list[tuple[int, int]]]:
    """Return the nodes whose edges lead to inputs: (position of the edge, number of the input) of each."""
    if not sources:
        return {}
    nodes: dict[Any, dict[int, int]] = {}
    leaves: dict[int, int] = {}
    for number, source in enumerate(sources):  # the first input of several that are the same tensor
        if source.node is not None:
            nodes.setdefault(source.node, {}).setdefault(source.position, number)
        else:
            leaves.setdefault(source.leaf, number)
    edges: dict[Any, list[tuple[int, int]]] = {}
    visited = set(roots)
    waiting = list(visited)
    while waiting and len(visited) < MAX_GRAPH_NODES:
        node = waiting.pop()
        for position, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            place = nodes.get(following, {}).get(number)
            if place is None:
                place = leaves.get(id(getattr(following, "variable", None)))
            if place is not None:
                edges.setdefault(node, []).append((position, place))
            elif following not in visited and following not in nodes:
                visited.add(following)
                waiting.append(following)
    return edges
