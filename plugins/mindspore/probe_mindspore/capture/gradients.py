"""The gradients of one call, exactly, without changing the graph.

The nodes that a call created lie between its outputs and its inputs. Hooks on them see the gradient of
each output as it comes in, and the call's own share of the gradient of each input as it goes out, before
it is added to what other uses of the same tensor give. Nothing is put in the way: a Cell's backward hook
would hand the call new tensors, and would not see those in lists and keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mindspore import Tensor
from probe_recording import Array, Arrived, Gathering

from probe_mindspore import compat
from probe_mindspore.values import values_of

LARGEST_WALK = 1_000_000
DEEPEST = 8


def tensors_in(values: Iterable[Any]) -> list[Any]:
    """All tensors, in the order of the arguments, through lists, tuples and dicts."""
    found: list[Any] = []
    _gather(values, found, 0)
    return found


def _gather(values: Iterable[Any], found: list[Any], depth: int) -> None:
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif depth < DEEPEST and isinstance(value, (list, tuple)):
            _gather(value, found, depth + 1)
        elif depth < DEEPEST and isinstance(value, dict):
            _gather(value.values(), found, depth + 1)


class Source:
    """Where the gradient of an input goes: a node and which of its outputs, taken before the call.

    Taken before, because a call in place moves its input to another node.
    """

    __slots__ = ("key", "node", "number")

    def __init__(self, tensor: Any) -> None:
        self.node = compat.node_of(tensor)
        self.key = (0, 0) if self.node is None else (compat.identity(self.node), compat.place_of(tensor))
        self.number = 0 if self.node is None else compat.number_of(self.node)


def sources_of(values: Iterable[Any]) -> list[Source]:
    """The sources of all tensors, with an empty one for each that needs no gradient."""
    return [Source(tensor) for tensor in tensors_in(values)]


Quiet = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which nothing is recorded."""


def attach(
    outputs: Sequence[Any], sources: Sequence[Source], arrived: Callable[[], Arrived], quiet: Quiet
) -> bool:
    """Have the gradients of a call told as they arrive; False where there will be none.

    Args:
        outputs: The tensors that the call returned.
        sources: Where its inputs come from.
        arrived: Makes the receiver, once there is something to receive.
        quiet: For what is computed when gradients arrive.
    """
    own = {source.key: i for i, source in reversed(list(enumerate(sources))) if source.node is not None}
    made = [(i, tensor, node) for i, tensor in enumerate(outputs) if (node := compat.node_of(tensor))]
    roots = {compat.identity(n): n for _, t, n in made if (compat.identity(n), compat.place_of(t)) not in own}
    if not roots:
        return False  # nothing was computed, or nothing that a gradient passes
    gathering = _Gathering(arrived(), len(sources), quiet)
    hooked: dict[int, list[tuple[int, Callable[[Any], None]]]] = {}
    for position, tensor, node in made:
        place = compat.place_of(tensor)
        same = own.get((compat.identity(node), place), -1)
        hooked.setdefault(compat.identity(node), []).append((place, gathering.output(position, same)))
    for number, node in {compat.identity(node): node for _, _, node in made}.items():
        node.register_prehook(_once(hooked[number]))
    for node, edges in _edges(roots, sources):
        node.register_hook(gathering.inputs(edges))
    gathering.ready()
    return True


def _edges(
    roots: dict[int, compat.Node], sources: Sequence[Source]
) -> list[tuple[compat.Node, list[tuple[int, int]]]]:
    """Nodes whose edges lead to inputs of the call: (position of the edge, number of the input).

    Nodes that were made before the newest of the inputs are no part of the call.
    """
    wanted: dict[tuple[int, int], list[int]] = {}
    for i, source in enumerate(sources):
        if source.node is not None:
            wanted.setdefault(source.key, []).append(i)
    newest = max((source.number for source in sources), default=0)
    found: list[tuple[compat.Node, list[tuple[int, int]]]] = []
    seen = set(roots)
    waiting = list(roots.values())
    while waiting and len(seen) < LARGEST_WALK:
        node = waiting.pop()
        edges: dict[tuple[int, int], list[int]] = {}
        for position, (following, place) in enumerate(compat.edges_of(node)):
            if following is None:
                continue
            key = compat.identity(following), place
            if key in wanted:
                edges.setdefault(key, []).append(position)
            elif key[0] not in seen and compat.number_of(following) > newest:
                seen.add(key[0])
                waiting.append(following)
        if edges:
            found.append((node, [pair for key, at in edges.items() for pair in _paired(at, wanted[key])]))
    return found


def _paired(positions: list[int], inputs: list[int]) -> list[tuple[int, int]]:
    """Edges and inputs; one tensor given twice has an edge each, or both shares count as the first's."""
    if len(positions) == len(inputs):
        return list(zip(positions, inputs))
    return [(position, inputs[0]) for position in positions]


class _Gathering(Gathering):
    """Adds up gradients in host memory: arrays, with the dtype of the last share."""

    def __init__(self, tell: Arrived, inputs: int, quiet: Quiet) -> None:
        super().__init__(tell, inputs)
        self._quiet = quiet

    def _added(self, total: tuple[Array, Any] | None, gradient: Any) -> tuple[Array, Any]:
        with self._quiet():
            array = values_of(gradient)
            return (array.copy() if total is None else total[0] + array, gradient.dtype)

    def _whole(self, total: tuple[Array, Any] | None, gradient: Any) -> Any:
        if total is None:
            return gradient
        if gradient is not None:
            total = self._added(total, gradient)
        return Tensor(total[0], dtype=total[1])


def _once(outputs: list[tuple[int, Callable[[Any], None]]]) -> Callable[[tuple[Any, ...]], None]:
    """Return a hook that hands each gradient on; a second pass over the same graph is not this one.

    Args:
        outputs: Which output of the node each is of, and what takes it.
    """

    def hook(gradients: tuple[Any, ...]) -> None:
        while outputs:
            place, take = outputs.pop(0)
            take(gradients[place] if place < len(gradients) else None)

    return hook
