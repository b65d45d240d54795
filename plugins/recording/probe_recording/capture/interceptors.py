"""The interface by which a task of a plugin observes single API calls of a framework.

A framework's plugin provides a ``CallInterceptor`` by the hook ``probe_interceptors``. It names calls as the
recorder of the framework does. A task that repeats calls uses it without importing the framework's plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from probe_core.errors import UserError
from probe_recording.settings.config import Config

GradientReceiver = Callable[[Sequence[Any], Sequence[Any]], None]
"""A callback for the gradients of one call: those of its results, and those of the inputs that need one."""


class RandomStates(Protocol):
    """The states of all random number generators that a call may draw from, at one moment."""

    def restore(self) -> None:
        """Set the generators to these states.

        Raises:
            RuntimeError: Numbers were drawn since, and the framework cannot restore its states (MindSpore).
        """

    def have_changed(self) -> bool:
        """Return True if a generator has another state now."""


class InterceptedCall(ABC):
    """A call of the program that has not run yet.

    Args:
        name: The name without phase, such as ``Functional.linear.3``.
        function: The function; calls inside it are not intercepted.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        writes: True if the call is known to overwrite one of its arguments.

    Attributes:
        name: The same.
        function: The same.
        args: The same.
        kwargs: The same.
        writes: The same.
    """

    __slots__ = ("args", "function", "kwargs", "name", "writes")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        writes: bool,
    ) -> None:
        self.name = name
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.writes = writes

    def run(self, receiver: GradientReceiver | None = None) -> Any:
        """Run the call as the program made it, and return its result.

        Args:
            receiver: A callback for the gradients of the call, which arrive during the backward pass; None if
                they are not needed. Nothing is added to the autograd graph.
        """
        if receiver is None:
            return self.function(*self.args, **self.kwargs)
        return self._run_with_gradients(receiver)

    @abstractmethod
    def differentiable_inputs(self) -> list[Any]:
        """Return the tensors among the arguments that need a gradient, in order, before the call runs.

        The list is empty if the framework records no graph.
        """

    @abstractmethod
    def _run_with_gradients(self, receiver: GradientReceiver) -> Any:
        """Run the call and register ``receiver`` for its gradients."""


class ActiveSession:
    """A stand-in for a session, for captures whose calls are not recorded but passed to a task."""

    active = True


Around = Callable[[InterceptedCall], Any]
"""A function that runs an intercepted call, by ``call.run()``, and returns the result for the program."""


class CallInterceptor(ABC):
    """An interceptor of the API calls of one process."""

    @abstractmethod
    def install(self, around: Around, model: Any = None) -> None:
        """Pass the calls of this thread to ``around`` until ``remove``.

        Args:
            around: The function that runs the calls.
            model: The model that ``start`` of the debugger was given, by which a framework may name calls.

        Raises:
            UserError: The program runs in a way in which calls cannot be intercepted.
        """

    @abstractmethod
    def remove(self) -> None:
        """Stop intercepting calls and restore the functions that were replaced."""

    def check_gradients(self) -> None:  # noqa: B027 - most frameworks show them
        """Check that calls can pass on their gradients.

        Raises:
            UserError: This version of the framework does not show the gradients of single calls.
        """

    @abstractmethod
    def restart_counts(self) -> None:
        """Number the calls of each API from 0 again, as at the beginning of a step."""

    @abstractmethod
    def suspend(self) -> AbstractContextManager[Any]:
        """Return a context whose calls are neither intercepted nor seen by modes of the program."""

    @abstractmethod
    def read_random_states(self, generator: Any = None) -> RandomStates:
        """Return the present states of all default generators, and of ``generator`` if it is one."""


def new_interceptor(config: Config, framework: str) -> CallInterceptor:
    """Return the interceptor of a framework.

    Args:
        config: The settings of the recording, such as the list of APIs.
        framework: The name of the framework.

    Raises:
        UserError: No installed plugin intercepts calls of the framework.
    """
    from probe_recording.installed import find_spec  # loads the plugins
    from probe_recording.specs import InterceptorSpec

    spec = find_spec("interceptors", InterceptorSpec, framework)
    if spec is None:
        raise UserError(
            f"No installed plugin intercepts calls of {framework}.",
            f"Install the distribution for {framework}, such as probe-pytorch.",
        )
    interceptor = replace(spec, values={"config": config}).make()
    assert isinstance(interceptor, CallInterceptor)
    return interceptor
