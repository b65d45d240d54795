"""The gradients of one call, gathered from hooks on the nodes of the autograd graph of any framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

GradientCallback = Callable[[str, int, Any, bool], None]
"""A callback for a gradient: side (``input`` or ``output``), position, tensor or None, True if it is last."""


class GradientCollector:
    """A collector of the gradients of one call, which passes them on when those of all inputs have arrived.

    Results that the program does not use get no gradient; theirs stays None.

    Args:
        receiver: A callback for the gradients of the results, and of the inputs.
        outputs: Number of results.
        inputs: Number of inputs.
        copy: A function that copies a gradient, because the engine may overwrite its memory.
    """

    def __init__(
        self,
        receiver: Callable[[Sequence[Any], Sequence[Any]], None],
        outputs: int,
        inputs: int,
        copy: Callable[[Any], Any],
    ) -> None:
        self._receiver: Callable[[Sequence[Any], Sequence[Any]], None] | None = receiver
        self._missing = inputs
        self._copy = copy
        self._gradients: dict[str, list[Any]] = {"input": [None] * outputs, "output": [None] * inputs}

    def __call__(self, side: str, position: int, gradient: Any, last: bool) -> None:
        """Take a gradient, as an ``GradientCallback``."""
        if self._receiver is None:
            return  # a second backward pass over a retained graph
        if position >= 0:
            self._gradients[side][position] = None if gradient is None else self._copy(gradient)
            self._missing -= side == "output"
        if last or not self._missing:
            receiver, self._receiver = self._receiver, None
            receiver(self._gradients["input"], self._gradients["output"])


def report_gradients(tell: GradientCallback, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Report the gradients of one graph node, which are all gradients of its call.

    Args:
        tell: The callback that receives them.
        outputs: The gradients that the node passes on.
        inputs: The gradients that it received.
    """
    for position, gradient in enumerate(inputs):
        tell("input", position, gradient, False)
    last = len(outputs) - 1
    for position, gradient in enumerate(outputs):
        tell("output", position, gradient, position == last)
    if last < 0:
        tell("output", -1, None, True)


class GradientGatherer(ABC):
    """A collector that adds up the gradients on the graph edges of one call and reports complete ones.

    Args:
        tell: A callback that receives each complete gradient.
        inputs: Number of inputs that may have a gradient.
    """

    def __init__(self, tell: GradientCallback, inputs: int) -> None:
        self._tell = tell
        self._missing = [0] * inputs
        self._sums: dict[int, Any] = {}
        self._waiting = 0

    def output(self, position: int, input_number: int) -> Callable[[Any], None]:
        """Return a hook that receives the gradient of an output.

        Args:
            position: The position of the output.
            input_number: The number of the input that was returned unchanged as this output, or -1. Such an input
                has the same gradient.
        """
        self._waiting += 1 + (input_number >= 0)
        if input_number >= 0:
            self._missing[input_number] = -1
        return partial(self._take_output, position, input_number)

    def inputs(self, places: Sequence[tuple[int, int]]) -> Callable[[tuple[Any, ...], Any], None]:
        """Return a hook that takes the gradients that a graph node passes on.

        Args:
            places: Pairs of a position among the node's gradients and the number of the input to whose
                gradient it contributes.
        """
        for _, place in places:
            if self._missing[place] < 0:
                continue
            if not self._missing[place]:
                self._waiting += 1
            self._missing[place] += 1
        return _InputsHook(self, places)

    def ready(self) -> None:
        """Report None for the inputs that no node leads to; call this after all hooks are registered."""
        for place, missing in enumerate(self._missing):
            if not missing:
                self._tell("output", place, None, False)

    # -- to be overridden for a framework -------------------------------------------------

    @abstractmethod
    def _add_gradient(self, total: Any, gradient: Any) -> Any:
        """Return a sum in memory of its own, because the engine may overwrite a gradient after its hooks."""

    def _sum_gradients(self, total: Any, gradient: Any) -> Any:
        """Return the gradient of an input: the sum of its earlier parts plus the last; either may be None."""
        if gradient is None:
            return total
        return gradient if total is None else self._add_gradient(total, gradient)

    # -- arrival of gradients --------------------------------------------------------------

    def share(self, place: int, gradient: Any) -> None:
        """Take a part of the gradient of an input."""
        if self._missing[place] <= 0:
            return  # a second backward pass over a retained graph
        self._missing[place] -= 1
        if self._missing[place]:
            if gradient is not None:
                self._sums[place] = self._add_gradient(self._sums.get(place), gradient)
            return
        self._missing[place] = -1
        self._waiting -= 1
        self._tell("output", place, self._sum_gradients(self._sums.pop(place, None), gradient), self._waiting <= 0)

    def _take_output(self, position: int, input_number: int, gradient: Any) -> None:
        self._report_gradient("input", position, gradient)
        if input_number >= 0:
            self._report_gradient("output", input_number, gradient)

    def _report_gradient(self, side: str, position: int, gradient: Any) -> None:
        self._waiting -= 1
        self._tell(side, position, gradient, self._waiting <= 0)


class _InputsHook:
    """A hook that takes the gradients that a graph node passes on; an object is cheaper than a closure."""

    __slots__ = ("_gathering", "_places")

    def __init__(self, gathering: GradientGatherer, places: Sequence[tuple[int, int]]) -> None:
        self._gathering = gathering
        self._places = places

    def __call__(self, gradients: tuple[Any, ...], _: Any) -> None:
        share = self._gathering.share
        for position, place in self._places:
            share(place, gradients[position] if position < len(gradients) else None)


# -- the search of a call's nodes, for frameworks whose tensors have ``grad_fn`` and ``output_nr`` ---

Node = Any
"""A node of the autograd graph."""

MAX_VISITED_NODES = 1_000_000


class GradientSource:
    """The place in the graph that receives the gradient of an input: a node and a position, or a leaf.

    It is created before the call, because an in-place call moves its input to another node.
    """

    __slots__ = ("leaf", "node", "position")

    def __init__(self, tensor: Any) -> None:
        self.node: Node = tensor.grad_fn
        self.position: int = tensor.output_nr
        self.leaf = id(tensor) if self.node is None else 0


def hook_call_nodes(
    gatherer: GradientGatherer,
    outputs: Sequence[tuple[int, Any]],
    sources: Sequence[GradientSource],
    may_enter: Callable[[Node], bool],
    register: Callable[[Any, Callable[[Any], None]], Any],
) -> None:
    """Install hooks that pass the gradients of a call to a gatherer.

    Args:
        gatherer: The gatherer, for as many inputs as there are sources.
        outputs: The outputs of the call that have a node, each with its position.
        sources: The sources of the inputs.
        may_enter: Returns True for a node that the call may have created, whose edges are searched.
        register: Installs a hook for the gradient of a tensor.
    """
    numbers = {(id(source.node), source.position): i for i, source in enumerate(sources) if source.node is not None}
    roots: list[Node] = []
    for position, tensor in outputs:
        number = numbers.get((id(tensor.grad_fn), tensor.output_nr), -1)
        if number < 0:
            roots.append(tensor.grad_fn)
        register(tensor, gatherer.output(position, number))
    for node, places in _find_edges(roots, sources, may_enter).items():
        node.register_hook(gatherer.inputs(places))


def _find_edges(
    roots: list[Node], sources: Sequence[GradientSource], may_enter: Callable[[Node], bool]
) -> dict[Node, list[tuple[int, int]]]:
    """Return the nodes whose edges lead to inputs: (position of the edge, number of the input) of each."""
    wanted: dict[Node, dict[int, int]] = {}
    leaves: dict[int, int] = {}
    for i, source in enumerate(sources):  # the first input of several that are the same tensor
        if source.node is not None:
            wanted.setdefault(source.node, {}).setdefault(source.position, i)
        else:
            leaves.setdefault(source.leaf, i)
    edges: dict[Node, list[tuple[int, int]]] = {}
    visited = set(roots)
    waiting = list(visited)
    while waiting and len(visited) < MAX_VISITED_NODES:
        node = waiting.pop()
        for position, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            place = wanted[following].get(number) if following in wanted else None
            if place is None:
                if following in visited:
                    continue
                variable = getattr(following, "variable", None)
                if variable is not None:
                    place = leaves.get(id(variable))
                    if place is None:
                        continue
            if place is not None:
                edges.setdefault(node, []).append((position, place))
            elif may_enter(following):
                visited.add(following)
                waiting.append(following)
    return edges
