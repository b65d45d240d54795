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

from probe_mindspore import compat
from probe_mindspore.values import values_of

LARGEST_WALK = 1_000_000
DEEPEST = 8

Arrived = Callable[[str, int, Any, bool], None]
"""Told of a gradient: side (``input`` or ``output``), position, the tensor or None, is it the last."""


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
    places: dict[int, list[tuple[int, int, int]]] = {}
    for position, tensor, node in made:
        place = compat.place_of(tensor)
        same = own.get((compat.identity(node), place), -1)
        places.setdefault(compat.identity(node), []).append((place, position, same))
    for number, node in {compat.identity(node): node for _, _, node in made}.items():
        gathering.expect_outputs(node, places[number])
    for node, edges in _edges(roots, sources):
        gathering.expect_inputs(node, edges)
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


class _Gathering:
    """Adds up what the edges of one call carry, and tells when an input's gradient is whole."""

    def __init__(self, tell: Arrived, inputs: int, quiet: Quiet) -> None:
        self._tell = tell
        self._quiet = quiet
        self._missing = [0] * inputs
        self._sums: dict[int, Any] = {}
        self._waiting = 0

    def expect_outputs(self, node: compat.Node, places: list[tuple[int, int, int]]) -> None:
        """The gradients of outputs that ``node`` made: which of its outputs, position, the input it is.

        An input that was returned as an output is told with it: their gradients are one.
        """
        for _, _, same in places:
            self._waiting += 1 + (same >= 0)
            if same >= 0:
                self._missing[same] = -1
        left = list(places)

        def hook(gradients: tuple[Any, ...]) -> None:
            while left:  # once: a second pass over the same graph is not this one
                place, position, same = left.pop(0)
                gradient = gradients[place] if place < len(gradients) else None
                self._told("input", position, gradient)
                if same >= 0:
                    self._told("output", same, gradient)

        node.register_prehook(hook)

    def expect_inputs(self, node: compat.Node, places: list[tuple[int, int]]) -> None:
        """Shares of the gradients of inputs, that ``node`` gives out."""
        places = [(position, place) for position, place in places if self._missing[place] >= 0]
        for _, place in places:
            if not self._missing[place]:
                self._waiting += 1
            self._missing[place] += 1

        def hook(gradients: tuple[Any, ...], _: tuple[Any, ...]) -> None:
            for position, place in places:
                self._share(place, gradients[position] if position < len(gradients) else None)

        node.register_hook(hook)

    def ready(self) -> None:
        """Everything that is expected is known: tell of inputs that nothing leads to."""
        for place, missing in enumerate(self._missing):
            if not missing:
                self._tell("output", place, None, False)

    def _share(self, place: int, gradient: Any) -> None:
        if self._missing[place] <= 0:
            return  # a second pass over the same graph
        self._missing[place] -= 1
        more = self._missing[place] > 0
        whole = self._sums.pop(place, None)
        if gradient is not None and (more or whole is not None):
            # the engine may write to a gradient once the hook has returned, so the sum is our own
            with self._quiet():
                array = values_of(gradient)
                whole = (array.copy() if whole is None else whole[0] + array, gradient.dtype)
        if more:
            if whole is not None:
                self._sums[place] = whole
            return
        self._missing[place] = -1
        self._told("output", place, gradient if whole is None else Tensor(whole[0], dtype=whole[1]))

    def _told(self, side: str, position: int, gradient: Any) -> None:
        self._waiting -= 1
        self._tell(side, position, gradient, self._waiting <= 0)
