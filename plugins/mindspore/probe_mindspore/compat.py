"""Private API of MindSpore that the recorder uses, written for MindSpore 2.10.

MindSpore 2.7 does not show the nodes of the autograd graph (``Tensor._grad_node``), so no backward calls are
recorded there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.seed import _KERNEL_SEED
from mindspore.ops.composite import base
from mindspore.ops.operations._inner_ops import Generator as GeneratorOp
from probe_recording.sites import Stack, list_stack_frames

from probe_core.errors import UserError

generators: Any = importlib.import_module("mindspore.common.generator")
"""The module of generators; ``mindspore.common`` has other attributes of its name."""

Node = Any
"""A node of the autograd graph."""

ORIGINAL_ATTRIBUTE = "__probe_original__"
"""Attribute of a wrapper that holds the wrapped function."""

MIN_LEAF_NUMBER = 2**63
"""Least number of the nodes of inputs and parameters; those of calls are numbered below."""


def has_nodes() -> bool:
    """Return True if this MindSpore shows the nodes of the graph, and so the gradients of single calls."""
    return hasattr(Tensor, "_grad_node")


def get_node(tensor: Any) -> Node:
    """Return the node that made ``tensor``; None if it needs no gradient."""
    return getattr(tensor, "_grad_node", None)


def get_output_index(tensor: Any) -> int:
    """Return the index of a tensor among the outputs of its node."""
    return int(tensor._output_index)


def get_identity(node: Node) -> int:
    """Return a number that identifies a node as long as it lives; its Python object does not."""
    return int(node._unique_id())


def get_node_number(node: Node) -> int:
    """Return the number of a node, in the order in which nodes were made; 0 for inputs and parameters."""
    number = int(node._sequence_nr())
    return 0 if number >= MIN_LEAF_NUMBER else number + 1


def list_edges(node: Node) -> list[tuple[Node, int]]:
    """Return the next node for each gradient that a node computes, and the index of that node's output.

    The next node is None for a gradient that nobody needs.
    """
    return [(following, int(place)) for following, place in node.next_functions]


def is_differentiating() -> bool:
    """Return True if calls of this moment become part of a graph."""
    try:
        from mindspore.graph.api import _pynative_executor as executor
    except ImportError:  # before 2.9
        from mindspore.common.api import _pynative_executor as executor
    return bool(executor.grad_flag() and executor.enable_grad())


def disable_gradients() -> AbstractContextManager[Any]:
    """Return a context in which computations are not part of the graph."""
    try:
        from mindspore.graph.api import _no_grad
    except ImportError:  # before 2.9
        try:
            from mindspore.common.api import _no_grad
        except ImportError:
            return nullcontext()
    context: AbstractContextManager[Any] = _no_grad()
    return context


def list_primitive_classes() -> list[type]:
    """Return the classes of primitives that define ``__call__`` themselves."""
    classes: list[type] = []
    waiting: list[type] = [ops.Primitive]
    visited = set(waiting)
    while waiting:
        kind = waiting.pop()
        if "__call__" in vars(kind):
            classes.append(kind)
        child: type
        for child in kind.__subclasses__():
            if child not in visited:
                visited.add(child)
                waiting.append(child)
    return classes


def list_primitives(cell: nn.Cell) -> dict[str, Any]:
    """Return the primitives that are attributes of ``cell``, by attribute."""
    return dict(getattr(cell, "_primitives", None) or {})


def get_primitive_name(primitive: Any) -> str:
    """Return the name of a primitive; that of its class if it has none."""
    return str(getattr(primitive, "name", None) or type(primitive).__name__)


def overwrites_arguments(primitive: Any) -> bool:
    """Return True if a primitive, such as that of an optimizer, writes into its arguments."""
    return bool(getattr(primitive, "side_effect_mem", False))


def hook_forward(cell: nn.Cell, before: Callable[..., None], after: Callable[..., None]) -> list[Any]:
    """Hook the forward of a Cell, and return the handles of the hooks.

    Args:
        cell: The Cell.
        before: Called before the forward, with keyword arguments.
        after: Called after it, also if the forward raised (but not with MindSpore 2.7).
    """
    handles = [cell.register_forward_pre_hook(before, with_kwargs=True)]
    try:
        handles.append(cell.register_forward_hook(after, with_kwargs=True, always_call=True))
    except TypeError:  # MindSpore 2.7
        handles.append(cell.register_forward_hook(after, with_kwargs=True))
    return handles


def hook_call(cell: nn.Cell, before: Callable[..., None]) -> Any:
    """Hook the calls of a Cell and return the handle; ``before`` receives the Cell and its arguments."""
    return cell.register_forward_pre_hook(before, with_kwargs=True)


def is_compiled_mode() -> bool:
    """Return True if the whole program is compiled (GRAPH_MODE)."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


def refuse_compiled_mode(problem: str, call: str) -> None:
    """Raise a UserError if the whole program is compiled.

    Args:
        problem: A sentence on what is not possible.
        call: The call of the script before which it may change the mode.
    """
    if is_compiled_mode():
        raise UserError(problem, f"Call mindspore.set_context(mode=mindspore.PYNATIVE_MODE) before {call}.")


_RECOMPUTE = "/mindspore/common/recompute.py"
_RECOMPUTE_FUNCTIONS = ("bprop", "recompute")


def is_recompute(stack: Stack) -> bool:
    """Return True if activation recomputation runs the call with this stack a second time."""
    return any(name in _RECOMPUTE_FUNCTIONS and file.endswith(_RECOMPUTE) for file, name in list_stack_frames(stack))


class EagerSwitch:
    """A switch that makes ``jit`` functions run uncompiled, by the documented ``MS_JIT=0``.

    Functions under ``vmap`` need a graph, and are still compiled.

    Args:
        suspend_wrappers: A function that removes all patches while a function is compiled, because compilers must not
            process them. It returns a function that installs the patches again.
    """

    def __init__(self, suspend_wrappers: Callable[[], Callable[[], None]]) -> None:
        self._suspend_wrappers = suspend_wrappers
        self._former: str | None = None
        self._vmap: Any = None

    def install(self) -> None:
        """Run ``jit`` functions uncompiled from now on."""
        if self._vmap is not None:
            return
        self._former = os.environ.get("MS_JIT")
        os.environ["MS_JIT"] = "0"
        self._vmap = original = base._Vmap.__call__

        def call(vmap: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            mapped = original(vmap, getattr(function, ORIGINAL_ATTRIBUTE, function), *args, **kwargs)

            def run(*values: Any, **keywords: Any) -> Any:
                with self.suspend():
                    return mapped(*values, **keywords)

            return run

        base._Vmap.__call__ = call

    def remove(self) -> None:
        """Restore the previous state."""
        if self._vmap is None:
            return
        base._Vmap.__call__, self._vmap = self._vmap, None
        self._set(self._former)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Return a context in which functions are compiled as without probe, and not recorded."""
        if self._vmap is None:  # the recording has ended
            yield
            return
        restore = self._suspend_wrappers()
        self._set(self._former)
        try:
            yield
        finally:
            os.environ["MS_JIT"] = "0"
            restore()

    @staticmethod
    def _set(value: str | None) -> None:
        """Set the environment variable ``MS_JIT``, or remove it."""
        if value is None:
            os.environ.pop("MS_JIT", None)
        else:
            os.environ["MS_JIT"] = value


TENSORS = (Tensor, Parameter)
"""Classes that have the methods of tensors; neither inherits from the other."""


def wait_for(tensors: list[Any]) -> None:
    """Wait until the values of ``tensors`` are computed, so that errors of their operators are raised here.

    A CPU has no ``synchronize``; there, reading a value waits as well, and copies nothing.
    """
    if mindspore.get_context("device_target") != "CPU":
        mindspore.runtime.synchronize()
        return
    for tensor in tensors:
        if 0 in tensor.shape or getattr(tensor, "has_init", False):
            continue
        try:
            tensor.asnumpy()
        except TypeError:  # bfloat16 with numpy 2
            tensor.float().asnumpy()
        return


def get_amp_level(cell: Any) -> str:
    """Return the level of mixed precision that a Cell was built with; empty for none."""
    return str(getattr(cell, "_amp_level", None) or "")


# -- random numbers ----------------------------------------------------------------------------


def get_default_generator() -> Any:
    """Return the generator that functions of ``mint`` draw from by default."""
    return generators.default_generator


def list_operator_seeds() -> list[tuple[str, int, int]]:
    """Return the names of operators, their seeds, and the values that their next calls receive.

    Operators that draw by the global seed have a counter each, which their calls advance. Counters that no
    call has advanced since the global seed was set are left out.
    """
    counters = dict(_KERNEL_SEED).items()
    return sorted((name, seed, value) for (name, seed), value in counters if value != seed)


def read_attributes(primitive: Any) -> dict[str, Any]:
    """Return the arguments that a primitive was constructed with, by name."""
    return dict(getattr(primitive, "init_attrs", None) or {})


class GeneratorStep:
    """A call of the primitive of a generator that returns a seed and advances the state.

    Args:
        primitive: The primitive.
        args: The inputs of the call: the number of a command, and the tensors of the state.
    """

    def __init__(self, primitive: Any, args: Sequence[Any]) -> None:
        self._primitive = primitive
        self._tensors = tuple(args[1][:2])

    @property
    def is_default(self) -> bool:
        """True for the default generator."""
        return self._primitive is get_default_generator()._generator

    def state(self) -> bytes:
        """Return the state of the generator by now."""
        values: bytes = self._primitive(generators.GET_STATE, self._tensors)[2].asnumpy().tobytes()
        return values

    def seed(self) -> int:
        """Return the random seed of the generator that was set last."""
        return int(self._primitive(generators.INITIAL_SEED, self._tensors)[0].asnumpy())


def find_generator_step(primitive: Any, args: Sequence[Any]) -> GeneratorStep | None:
    """Return the step of a generator, if a call of a primitive is one."""
    if type(primitive) is not GeneratorOp or len(args) < 2 or args[0] != generators.STEP:
        return None
    return GeneratorStep(primitive, args)
