"""Interception of API calls for tasks of other plugins, by the captures of the recorder (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

from mindspore import Tensor, ops
from mindspore.ops.operations import comm_ops
from probe_recording.api import CallInterceptor, Config, InterceptedCall
from probe_recording.capture.gathering import GradientCollector
from probe_recording.capture.interceptors import ActiveSession, GradientReceiver
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack

from probe_core.errors import UserError
from probe_mindspore import compat
from probe_mindspore.capture.call_recorder import MindSporeCallRecorder
from probe_mindspore.capture.cells import list_all_cells
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.capture.function_wrappers import FunctionWrappers
from probe_mindspore.capture.gradients import Quiet, attach, list_sources, list_tensors
from probe_mindspore.capture.random_primitives import find_seeds
from probe_mindspore.values import read_values

SIDE_EFFECT_PRIMITIVES = ("GetNext", "Print", "PyFunc", "ScalarSummary", "TensorDump", "TensorSummary")
"""Primitives that must run only once, because they read data, print or write files."""


class Interceptor(CallInterceptor):
    """An interceptor of the calls that the recorder records at level L1, with the same names.

    Collectives and primitives with side effects are not intercepted. ``jit`` functions run uncompiled while
    calls are intercepted, as for the recorder. Errors of operators, which MindSpore raises some time later,
    are raised by the call that caused them.

    Args:
        config: The settings of the recorder. No setting selects functions of MindSpore.
    """

    def __init__(self, config: Config) -> None:
        self._threads = Threads()
        self._draws = _DrawCounter()
        self._calls = _CallForwarder(self._threads)
        self._functions = FunctionWrappers(self._threads, self._draws)
        self._eager = compat.EagerSwitch(self._functions.suspend)

    def install(self, around: Callable[[InterceptedCall], Any], model: Any = None) -> None:
        """Pass the calls of this thread to ``around`` until ``remove``.

        Raises:
            UserError: The program is compiled (GRAPH_MODE).
        """
        compat.refuse_compiled_mode("Calls cannot be observed in GRAPH_MODE.", "start()")
        self._eager.install()
        if model is not None:
            self._functions.set_primitives(list_all_cells(model))
        self._calls.around = around
        self._functions.recorder = self._calls
        self._functions.install()

    def remove(self) -> None:
        """Stop intercepting calls and restore the functions that were replaced."""
        self._calls.around = self._functions.recorder = None
        self._functions.remove()
        self._eager.remove()

    def check_gradients(self) -> None:
        """Raise a UserError if this version of MindSpore does not show the gradients of single calls."""
        if not compat.has_nodes():
            raise UserError(
                "This version of MindSpore does not show the gradients of single calls.",
                "Install MindSpore 2.10: pip install mindspore==2.10.0",
            )

    def restart_counts(self) -> None:
        """Number the calls of each API from 0 again."""
        self._calls.counts.clear()

    def suspend(self) -> AbstractContextManager[Any]:
        """Return a context whose calls are not intercepted."""
        return self._threads.suspend()

    def read_random_states(self, generator: Any = None) -> _RandomStates:
        """Return the present states of all generators."""
        return _RandomStates(self._draws)


class _DrawCounter(DrawWatch):
    """A watcher that counts the calls of primitives that draw random numbers.

    Attributes:
        count: The number of these calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def note(self, primitive: Any, args: Sequence[Any]) -> None:
        """Count a call of a primitive that begins, if it draws random numbers."""
        try:
            draws = find_seeds(primitive, args) is not None or compat.find_generator_step(primitive, args) is not None
        except Exception:  # the call must go on whatever the error
            draws = True
        self.count += draws


class _RandomStates:
    """The states of the random number generators at one moment.

    Kernels do not show their states, so the number of calls that drew random numbers stands for them.

    Args:
        draws: The counter of these calls.
    """

    def __init__(self, draws: _DrawCounter) -> None:
        self._draws = draws
        self._count = draws.count

    def restore(self) -> None:
        """Do nothing if no numbers were drawn.

        Raises:
            RuntimeError: Numbers were drawn, so the states cannot be restored.
        """
        if self.have_changed():
            raise RuntimeError("MindSpore cannot restore the states of kernels that draw random numbers")

    def have_changed(self) -> bool:
        """Return True if random numbers were drawn since."""
        return self._draws.count != self._count


class _CallForwarder(MindSporeCallRecorder):
    """A receiver of the calls that the capture sees, which passes them on instead of recording them.

    Attributes:
        around: The function that runs the calls; None to run them unchanged.
        counts: The number of calls of each API in this step.
    """

    def __init__(self, threads: Threads) -> None:
        self.session: Any = ActiveSession()
        self._threads = threads
        self.around: Callable[[InterceptedCall], Any] | None = None
        self.counts: dict[str, int] = {}

    def record(
        self, prefix: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        stack: Stack, in_place: bool = False,
    ) -> Any:  # fmt: skip
        """Pass a call to ``around``, and return what that returns; one without tensors is not counted."""
        around = self.around
        if around is None:
            return function(*args, **kwargs)
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        call = _MindSporeCall(
            f"{prefix}.{number}", self._wrap_with_wait(function), args, kwargs, writes=in_place, quiet=self._quiet
        )
        try:
            result = call.run() if _is_run_once(prefix) else around(call)
        except BaseException:
            self.counts[prefix] = number
            raise
        if not list_tensors((*args, *kwargs.values(), result)):
            self.counts[prefix] = number
        return result

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Return a context in which calls are not intercepted, and not part of the graph."""
        with self._threads.suspend(), compat.disable_gradients():
            yield

    def _wrap_with_wait(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits for its operators, so that it raises their errors."""

        def run(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            with self._threads.suspend():
                compat.wait_for(list_tensors((result,)) or list_tensors((*args, *kwargs.values())))
            return result

        return run


class _MindSporeCall(InterceptedCall):
    """A call of MindSpore that has not run yet."""

    __slots__ = ("_quiet",)

    def __init__(self, *args: Any, quiet: Quiet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._quiet = quiet

    def differentiable_inputs(self) -> list[Any]:
        """Return the tensors among the arguments that need a gradient, in order, before the call runs."""
        if not compat.is_differentiating():
            return []
        tensors = list_tensors((*self.args, *self.kwargs.values()))
        return [tensor for tensor in tensors if compat.get_node(tensor) is not None]

    def _run_with_gradients(self, receiver: GradientReceiver) -> Any:
        inputs = [id(tensor) for tensor in self.differentiable_inputs()]
        tensors = {id(tensor): tensor for tensor in self.differentiable_inputs()}
        firsts = [inputs.index(number) for number in tensors]
        sources = list_sources(tensors.values())
        result = self.function(*self.args, **self.kwargs)
        if result is None and self.writes and self.args:
            outputs = [self.args[0]]
        else:
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        places = [place for place, output in enumerate(outputs) if isinstance(output, Tensor)]

        def spread(received: Sequence[Any], passed_on: Sequence[Any]) -> None:
            """Pass on one gradient for each result and input; a repeated input has it at its first place."""
            receiver(_spread(received, places, len(outputs)), _spread(passed_on, firsts, len(inputs)))

        arrived = partial(GradientCollector, spread, len(places), len(sources), self._copy_gradient)
        if sources:
            attach([outputs[place] for place in places], sources, arrived, self._quiet)
        return result

    def _copy_gradient(self, gradient: Tensor) -> Tensor:
        with self._quiet():
            return Tensor(read_values(gradient).copy(), dtype=gradient.dtype)


def _spread(values: Sequence[Any], places: Sequence[int], length: int) -> list[Any]:
    """Return a list with each value at its place, and None at all other places."""
    result: list[Any] = [None] * length
    for place, value in zip(places, values):
        result[place] = value
    return result


def _is_run_once(prefix: str) -> bool:
    """Return True for a call that a task must not repeat."""
    family, _, rest = prefix.partition(".")
    return family == "Distributed" or (family == "Primitive" and rest.rpartition(".")[2] in _list_single_primitives())


@cache
def _list_single_primitives() -> frozenset[str]:
    """Return the classes of primitives that communicate or have other side effects."""
    collectives = (
        name for name, kind in vars(comm_ops).items() if isinstance(kind, type) and issubclass(kind, ops.Primitive)
    )
    return frozenset((*collectives, *SIDE_EFFECT_PRIMITIVES))
