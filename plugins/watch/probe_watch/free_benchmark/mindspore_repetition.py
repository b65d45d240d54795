"""The second run of one call of MindSpore, with changed copies of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor
from probe_recording import InterceptedCall

from probe_watch.free_benchmark.arguments import UnsupportedTensor, choose_change, map_tensors
from probe_watch.free_benchmark.array_perturbations import HALVES, Array, array_changer
from probe_watch.free_benchmark.mindspore_tensors import (
    array_of,
    dtype_name,
    is_floating,
    is_supported,
    mindspore_tensors_in,
    tensor_of,
)
from probe_watch.free_benchmark.settings import Mode


@dataclass(frozen=True, slots=True)
class Repetition:
    """A second run of a call that is ready to start.

    Attributes:
        function: The function to call.
        args: The changed positional arguments.
        kwargs: The changed keyword arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """Return the result of the call."""
        return self.function(*self.args, **self.kwargs)


def repetition_of(
    call: InterceptedCall, mode: Mode, noise: Mapping[str, float], *, keeps_graph: bool = False
) -> Repetition | None:
    """Return a second run of a call that has not run yet.

    Args:
        call: The call.
        mode: The change of its arguments.
        noise: The size of the noise, by dtype.
        keeps_graph: True to let gradients of the result reach the program's tensors.

    Returns:
        The second run; None if the mode changes none of the arguments.

    Raises:
        UnsupportedTensor: An argument is a tensor of a kind that cannot be copied.
    """
    tensors = list(mindspore_tensors_in((call.args, call.kwargs)))
    if not all(map(is_supported, tensors)):
        raise UnsupportedTensor
    builder = _Builder(mode, keeps_graph=keeps_graph)
    if mode.raises_precision:
        has_halves = any(dtype_name(tensor) in HALVES for tensor in tensors)
        if not tensors or (mode is Mode.IMPROVE_PRECISION and not has_halves):
            return None
    elif not builder.choose((*call.args, *call.kwargs.values()), array_changer(mode, noise)):
        return None
    return Repetition(
        call.function,
        map_tensors(builder.copy, call.args, Tensor),
        map_tensors(builder.copy, call.kwargs, Tensor),
    )


class _Builder:
    """A builder of the arguments of one second run."""

    def __init__(self, mode: Mode, *, keeps_graph: bool) -> None:
        self._mode = mode
        self._keeps_graph = keeps_graph
        self._target: Tensor | None = None
        self._values: Array | None = None
        self._copies: dict[int, Any] = {}

    def choose(self, values: Iterable[Any], change: Callable[[Array, str], Array | None]) -> bool:
        """Choose the tensor to change, in the first argument with a floating tensor; return False if none."""
        chosen = choose_change(
            values, Tensor, is_floating, lambda tensor: change(array_of(tensor), dtype_name(tensor))
        )
        if chosen is not None:
            self._target, self._values = chosen
        return chosen is not None

    def copy(self, tensor: Tensor) -> Any:
        """Return the copy of a tensor; the chosen tensor is changed at its first place only."""
        if tensor is self._target and self._values is not None:
            values, self._values = self._values, None
            return tensor_of(values, tensor)
        copied = self._copies.get(id(tensor))
        if copied is None:
            copied = self._copies[id(tensor)] = self._copied(tensor)
        return copied

    def _copied(self, tensor: Tensor) -> Any:
        is_raised = self._mode.raises_precision and dtype_name(tensor) in HALVES
        if self._keeps_graph and is_floating(tensor):
            return tensor.astype(mindspore.float32) if is_raised else tensor * 1.0
        if is_raised:
            return Tensor(array_of(tensor).astype(np.float32))
        return tensor_of(array_of(tensor), tensor)
