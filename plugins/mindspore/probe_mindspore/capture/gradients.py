"""Capture of the exact gradients of one call, without changing the graph.

The nodes that a call creates lie between its outputs and its inputs. Hooks on these nodes see the gradient of
each output when it arrives, and the call's own share of the gradient of each input, before the shares of
other uses of the same tensor are added. The backward hook of a Cell would replace the tensors of the call,
and would miss those in lists and keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mindspore import Tensor
from probe_recording.capture.gathering import GradientCallback, GradientGatherer
from probe_recording.values.arrays import Array

from probe_mindspore import compat
from probe_mindspore.values import read_values

MAX_VISITED_NODES = 1_000_000
"""Largest number of nodes that are searched for the inputs of a call."""

MAX_DEPTH = 8
"""Depth of lists, tuples and dicts up to which tensors are found."""


def list_tensors(values: Iterable[Any]) -> list[Any]:
    """Return all tensors in the order of the arguments, including those in lists, tuples and dicts."""
    tensors: list[Any] = []
    _gather(values, tensors, 0)
    return tensors


def _gather(values: Iterable[Any], tensors: list[Any], depth: int) -> None:
    """Append the tensors among ``values`` to ``tensors``."""
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif depth < MAX_DEPTH and isinstance(value, (list, tuple)):
            _gather(value, tensors, depth + 1)
        elif depth < MAX_DEPTH and isinstance(value, dict):
            _gather(value.values(), tensors, depth + 1)


class GradientSource:
    """Destination of an input's gradient: a node, and the index of the node's output.

    It is made before the call, because a call in place moves its input to another node.

    Attributes:
        key: Identity of the node, and the index of its output; zeros if the input needs no gradient.
        node: The node; None if the input needs no gradient.
        number: Number of the node, in the order in which nodes were made.
    """

    __slots__ = ("key", "node", "number")

    def __init__(self, tensor: Any) -> None:
        self.node = compat.get_node(tensor)
        self.key = (0, 0) if self.node is None else (compat.get_identity(self.node), compat.get_output_index(tensor))
        self.number = 0 if self.node is None else compat.get_node_number(self.node)


def list_sources(values: Iterable[Any]) -> list[GradientSource]:
    """Return the source of each tensor; it is empty for a tensor that needs no gradient."""
    return [GradientSource(tensor) for tensor in list_tensors(values)]


Quiet = Callable[[], AbstractContextManager[Any]]
"""Function that returns a context in which nothing is recorded."""


def attach(
    outputs: Sequence[Any], sources: Sequence[GradientSource], arrived: Callable[[], GradientCallback], quiet: Quiet
) -> bool:
    """Hook the nodes of a call, so that its gradients are recorded when they arrive.

    Args:
        outputs: The tensors that the call returned.
        sources: The sources of its inputs.
        arrived: Returns the receiver of the gradients; called only if there will be any.
        quiet: Returns the context for computations with gradients.

    Returns:
        False if there will be no gradients.
    """
    inputs = {source.key: i for i, source in reversed(list(enumerate(sources))) if source.node is not None}
    graph_outputs = [(i, tensor, node) for i, tensor in enumerate(outputs) if (node := compat.get_node(tensor))]
    roots = {
        compat.get_identity(node): node
        for _, tensor, node in graph_outputs
        if (compat.get_identity(node), compat.get_output_index(tensor)) not in inputs
    }
    if not roots:
        return False  # the call computed nothing that needs a gradient
    gathering = _HostGradientCollector(arrived(), len(sources), quiet)
    hooked: dict[int, list[tuple[int, Callable[[Any], None]]]] = {}
    for position, tensor, node in graph_outputs:
        place = compat.get_output_index(tensor)
        input_number = inputs.get((compat.get_identity(node), place), -1)
        hooked.setdefault(compat.get_identity(node), []).append((place, gathering.output(position, input_number)))
    for number, node in {compat.get_identity(node): node for _, _, node in graph_outputs}.items():
        node.register_prehook(_create_single_use_hook(hooked[number]))
    for node, edges in _find_edges(roots, sources):
        node.register_hook(gathering.inputs(edges))
    gathering.ready()
    return True


def _find_edges(
    roots: dict[int, compat.Node], sources: Sequence[GradientSource]
) -> list[tuple[compat.Node, list[tuple[int, int]]]]:
    """Return the nodes of a call with edges to its inputs, with (position of the edge, index of the input).

    Nodes that were made before the newest of the inputs are not part of the call, and are not searched.

    Args:
        roots: The nodes of the call's outputs, by identity.
        sources: The sources of the call's inputs.
    """
    wanted: dict[tuple[int, int], list[int]] = {}
    for i, source in enumerate(sources):
        if source.node is not None:
            wanted.setdefault(source.key, []).append(i)
    newest = max((source.number for source in sources), default=0)
    nodes: list[tuple[compat.Node, list[tuple[int, int]]]] = []
    visited = set(roots)
    waiting = list(roots.values())
    while waiting and len(visited) < MAX_VISITED_NODES:
        node = waiting.pop()
        edges: dict[tuple[int, int], list[int]] = {}
        for position, (following, place) in enumerate(compat.list_edges(node)):
            if following is None:
                continue
            key = compat.get_identity(following), place
            if key in wanted:
                edges.setdefault(key, []).append(position)
            elif key[0] not in visited and compat.get_node_number(following) > newest:
                visited.add(key[0])
                waiting.append(following)
        if edges:
            nodes.append((node, [pair for key, at in edges.items() for pair in _pair_edges(at, wanted[key])]))
    return nodes


def _pair_edges(positions: list[int], inputs: list[int]) -> list[tuple[int, int]]:
    """Return pairs of edge and input.

    A tensor that is given twice has an edge for each; if it has not, all shares count for the first input.
    """
    if len(positions) == len(inputs):
        return list(zip(positions, inputs))
    return [(position, inputs[0]) for position in positions]


class _HostGradientCollector(GradientGatherer):
    """Sum of gradients in host memory: an array, with the dtype of the last share."""

    def __init__(self, tell: GradientCallback, inputs: int, quiet: Quiet) -> None:
        super().__init__(tell, inputs)
        self._quiet = quiet

    def _add_gradient(self, total: tuple[Array, Any] | None, gradient: Any) -> tuple[Array, Any]:
        with self._quiet():
            array = read_values(gradient)
            return (array.copy() if total is None else total[0] + array, gradient.dtype)

    def _sum_gradients(self, total: tuple[Array, Any] | None, gradient: Any) -> Any:
        if total is None:
            return gradient
        if gradient is not None:
            total = self._add_gradient(total, gradient)
        return Tensor(total[0], dtype=total[1])


def _create_single_use_hook(outputs: list[tuple[int, Callable[[Any], None]]]) -> Callable[[tuple[Any, ...]], None]:
    """Return a hook that passes each gradient on once; a second pass over the same graph is ignored.

    Args:
        outputs: Index of the node's output, and the function that takes its gradient.
    """

    def hook(gradients: tuple[Any, ...]) -> None:
        while outputs:
            place, take = outputs.pop(0)
            take(gradients[place] if place < len(gradients) else None)

    return hook
