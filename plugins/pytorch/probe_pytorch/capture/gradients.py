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
from probe_recording.api import Backward
from probe_recording.capture.gathering import (
    GradientCallback,
    GradientGatherer,
    GradientSource,
    Node,
    hook_call_nodes,
    report_gradients,
)
from probe_recording.values.collector import SCALARS

from probe_pytorch import compat, compat_hooks
from probe_pytorch.statistics import PLAIN

PASS_THROUGH_NODES = frozenset({"TBackward0", "ToCopyBackward0"})
"""Nodes that only pass a tensor on: linear transposes its weight, autocast converts its inputs.

The gradient is recorded before it passes through them (transposed, or in the dtype of the computation), as
msprobe does.
"""


def list_tensors(values: Iterable[Any]) -> list[torch.Tensor]:
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
            _gather((getattr(value, name, None) for name in type(value).__dataclass_fields__), tensors, depth + 1)


def list_sources(values: Iterable[Any]) -> list[GradientSource]:
    """Return the sources of all tensors that need a gradient."""
    return [GradientSource(tensor) for tensor in list_tensors(values)]


def attach_api(
    outputs: Sequence[Any], sources: Sequence[GradientSource], arrived: Callable[[], GradientCallback], first_new: int
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
    for tensor in list_tensors(outputs):
        node = tensor.grad_fn
        if node is not None:
            break
    else:
        return False
    source_node_ids = {id(source.node) for source in sources if source.node is not None}
    if id(node) in source_node_ids:
        return False  # the output is one of the inputs: nothing was computed
    if _is_whole(node, source_node_ids):
        tell = arrived()
        node.register_hook(tell.take_node if isinstance(tell, Backward) else partial(report_gradients, tell))
        return True
    _attach_walked(outputs, sources, arrived(), first_new)
    return True


def has_single_node(outputs: Sequence[Any], sources: Sequence[GradientSource]) -> bool:
    """Return True if a call made one node, whose gradients are those of its arguments for every recorder."""
    nodes = {t.grad_fn for t in list_tensors(outputs) if t.grad_fn is not None}
    source_node_ids = {id(source.node) for source in sources if source.node is not None}
    return len(nodes) == 1 and all(_is_whole(node, source_node_ids) for node in nodes)


def _is_whole(node: Node, source_node_ids: set[int]) -> bool:
    """Return True if all edges of ``node`` leave the call, if need be through nodes that pass a tensor on."""
    for following, _ in node.next_functions:
        if following is None or id(following) in source_node_ids or hasattr(following, "variable"):
            continue
        if following.name() not in PASS_THROUGH_NODES or not _is_whole(following, source_node_ids):
            return False
    return True


def attach_walked(
    outputs: Sequence[Any], sources: Sequence[GradientSource], arrived: Callable[[], GradientCallback], first_new: int
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
    if not any(t.grad_fn is not None for t in list_tensors(outputs)):
        return False
    _attach_walked(outputs, sources, arrived(), first_new)
    return True


def _attach_walked(
    outputs: Sequence[Any], sources: Sequence[GradientSource], tell: GradientCallback, first_new: int
) -> None:
    gatherer = _DeviceGradientCollector(tell, len(sources))
    get_node_number = compat.get_node_number
    tensors = [
        (position, tensor)
        for position, tensor in enumerate(outputs)
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None
    ]
    hook_call_nodes(
        gatherer, tensors, sources, lambda node: get_node_number(node) >= first_new, compat_hooks.register_hook
    )
    gatherer.ready()


class _DeviceGradientCollector(GradientGatherer):
    """A collector that adds up gradients on their device."""

    def _add_gradient(self, total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.detach()
        with compat.disable_modes():
            return gradient.clone() if total is None else total + gradient

    def _sum_gradients(self, total: torch.Tensor | None, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return total
        return gradient.detach() if total is None else self._add_gradient(total, gradient)
