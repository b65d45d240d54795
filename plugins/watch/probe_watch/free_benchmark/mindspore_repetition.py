"""The second run of one call of MindSpore, forward or backward, with changed copies of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, ops
from probe_recording.api import InterceptedCall

from probe_watch.free_benchmark.arguments import UnsupportedTensor, choose_change, map_tensors
from probe_watch.free_benchmark.array_perturbations import HALVES, Array, create_array_changer
from probe_watch.free_benchmark.mindspore_tensors import (
    copy_to_array,
    create_tensor,
    format_dtype,
    is_floating,
    is_supported,
    iterate_mindspore_tensors,
)
from probe_watch.free_benchmark.settings import ChangeMode


@dataclass(frozen=True, slots=True)
class Repetition:
    """A second run of a call that is ready to start.

    Attributes:
        function: The function to call.
        args: The changed positional arguments.
        kwargs: The changed keyword arguments.
        writes: True if the call overwrites its first argument.
        leaves: The arguments that stand for tensors that need a gradient.
        inputs: The positions among the leaves, for each of the program's tensors that need a gradient. A
            repeated tensor has all of them at its first place.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    writes: bool
    leaves: tuple[Tensor, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()

    def run(self) -> Any:
        """Return the result of the call."""
        return self.function(*self.args, **self.kwargs)

    def gradients(self, received: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Run the call and its backward pass, and return the gradients of ``inputs``.

        Args:
            received: The gradients of the results of the program's call, None where there is none.
        """
        places = [place for place, gradient in enumerate(received) if gradient is not None]
        gradients = tuple(gradient for gradient in received if gradient is not None)
        if not places or not self.leaves:
            return [None] * len(self.inputs)

        errors: list[Exception] = []

        def run(*leaves: Tensor) -> tuple[Tensor, ...]:
            try:
                results = self._run_with(leaves)
                return tuple(results[place].astype(each.dtype) for place, each in zip(places, gradients))
            except Exception as error:  # if it is raised here, MindSpore goes on differentiating
                errors.append(error)
                return gradients

        gradient_of = ops.GradOperation(get_all=True, sens_param=True)
        values = gradient_of(run)(*self.leaves, gradients)
        if errors:
            raise errors[0]
        return [reduce(add, [values[at] for at in leaves]) if leaves else None for leaves in self.inputs]

    def _run_with(self, leaves: Sequence[Tensor]) -> Sequence[Any]:
        """Return the results of the call with other tensors in place of the leaves."""
        others = {
            id(leaf): other * 1 if self.writes else other  # a call must not overwrite a leaf
            for leaf, other in zip(self.leaves, leaves)
        }
        args, kwargs = (
            map_tensors(lambda tensor: others.get(id(tensor), tensor), value, Tensor)
            for value in (self.args, self.kwargs)
        )
        result = self.function(*args, **kwargs)
        if result is None and self.writes:
            result = args[0]
        return result if isinstance(result, (list, tuple)) else (result,)


def create_repetition(
    call: InterceptedCall, mode: ChangeMode, noise: Mapping[str, float], *, keeps_graph: bool = False,
    differentiable: Sequence[Tensor] = (),
) -> Repetition | None:  # fmt: skip
    """Return a second run of a call that has not run yet.

    Args:
        call: The call.
        mode: The change of its arguments.
        noise: The size of the noise, by dtype.
        keeps_graph: True to let gradients of the result reach the program's tensors.
        differentiable: The arguments whose gradients are compared, one of which is changed; empty for the
            comparison of results.

    Returns:
        The second run; None if the mode changes none of the arguments.

    Raises:
        UnsupportedTensor: An argument is a tensor of a kind that cannot be copied.
    """
    tensors = list(iterate_mindspore_tensors((call.args, call.kwargs)))
    if not all(map(is_supported, tensors)):
        raise UnsupportedTensor
    builder = _Builder(mode, {id(tensor) for tensor in differentiable}, keeps_graph=keeps_graph)
    if mode.raises_precision:
        has_halves = any(format_dtype(tensor) in HALVES for tensor in tensors)
        if not tensors or (mode is ChangeMode.IMPROVE_PRECISION and not has_halves):
            return None
    elif not builder.choose((*call.args, *call.kwargs.values()), create_array_changer(mode, noise)):
        return None
    args = map_tensors(builder.copy, call.args, Tensor)
    kwargs = map_tensors(builder.copy, call.kwargs, Tensor)
    leaves, inputs = builder.leaves(differentiable)
    return Repetition(call.function, args, kwargs, call.writes, leaves, inputs)


class _Builder:
    """A builder of the arguments of one second run.

    Args:
        mode: The change of the arguments.
        differentiable: The ids of the arguments whose gradients are compared.
        keeps_graph: True to let gradients of the result reach the program's tensors.
    """

    def __init__(self, mode: ChangeMode, differentiable: set[int], *, keeps_graph: bool) -> None:
        self._mode = mode
        self._differentiable = differentiable
        self._leaves: dict[int, list[Tensor]] = {}
        self._keeps_graph = keeps_graph
        self._target: Tensor | None = None
        self._values: Array | None = None
        self._copies: dict[int, Any] = {}

    def choose(self, values: Iterable[Any], change: Callable[[Array, str], Array | None]) -> bool:
        """Choose the tensor to change, in the first argument with a floating tensor; return False if none."""

        def is_wanted(tensor: Tensor) -> bool:
            return is_floating(tensor) and (not self._differentiable or id(tensor) in self._differentiable)

        chosen = choose_change(
            values, Tensor, is_wanted, lambda tensor: change(copy_to_array(tensor), format_dtype(tensor))
        )
        if chosen is not None:
            self._target, self._values = chosen
        return chosen is not None

    def copy(self, tensor: Tensor) -> Any:
        """Return the copy of a tensor; the chosen tensor is changed at its first place only."""
        if tensor is self._target and self._values is not None:
            values, self._values = self._values, None
            return self._note_copy(tensor, create_tensor(values, tensor))
        copied = self._copies.get(id(tensor))
        if copied is None:
            copied = self._copies[id(tensor)] = self._note_copy(tensor, self._copy_tensor(tensor))
        return copied

    def leaves(self, differentiable: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[tuple[int, ...], ...]]:
        """Return all leaves, and for each tensor the positions of its leaves, at the first occurrence only."""
        leaves: list[Tensor] = []
        inputs: list[tuple[int, ...]] = []
        waiting = dict(self._leaves)
        for tensor in differentiable:
            tensor_leaves = waiting.pop(id(tensor), [])
            inputs.append(tuple(range(len(leaves), len(leaves) + len(tensor_leaves))))
            leaves += tensor_leaves
        return tuple(leaves), tuple(inputs)

    def _note_copy(self, tensor: Tensor, copied: Tensor) -> Tensor:
        """Return a copy, which becomes a leaf if the gradient of its tensor is compared."""
        if id(tensor) not in self._differentiable or not is_floating(tensor):
            return copied
        leaf = Tensor(copied) if isinstance(copied, Parameter) else copied
        self._leaves.setdefault(id(tensor), []).append(leaf)
        return leaf

    def _copy_tensor(self, tensor: Tensor) -> Any:
        is_raised = self._mode.raises_precision and format_dtype(tensor) in HALVES
        if self._keeps_graph and is_floating(tensor):
            return tensor.astype(mindspore.float32) if is_raised else tensor * 1.0
        if is_raised:
            return Tensor(copy_to_array(tensor).astype(np.float32))
        return create_tensor(copy_to_array(tensor), tensor)
