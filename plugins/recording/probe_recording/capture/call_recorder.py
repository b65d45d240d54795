"""Recording of one API call: its inputs before it runs, its outputs afterwards, its gradients later."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from probe_recording.capture.threads import Threads
from probe_recording.sessions.session import Session
from probe_recording.sites import Stack
from probe_recording.values.leaves import Tree

S = TypeVar("S", bound=Session)


@dataclass(slots=True, eq=False)
class RunningCall:
    """A recorded call that has begun.

    Attributes:
        prefix: The name without call count and phase, such as ``Functional.relu``.
        number: The call count, from 0 in each step.
        stack: The frames of the caller.
        parent: The forward record of the surrounding module, or None.
        is_recorded: True if the forward of the call is recorded.
        is_in_selected_module: True inside a module that ``list`` selects, in which every call is recorded.
        fields: The fields of the forward record so far.
        sources: The places in the autograd graph that receive the inputs' gradients; framework-specific.
        first_new: The sequence number of the first graph node that the call can create, for frameworks that
            count their nodes.
    """

    prefix: str
    number: int
    stack: Stack
    parent: str | None
    is_recorded: bool
    is_in_selected_module: bool
    fields: dict[str, Tree] = field(default_factory=dict)
    sources: list[Any] = field(default_factory=list)
    first_new: int = 0

    @property
    def name(self) -> str:
        """The name of the call without its phase, such as ``Functional.relu.0``."""
        return f"{self.prefix}.{self.number}"


class CallRecorder(Generic[S]):
    """A recorder of calls into a session; subclasses add how their framework traces gradients.

    Attributes:
        outputs_may_change: True if the data of an output may change before its record is complete.
    """

    outputs_may_change = False

    def __init__(self, session: S, threads: Threads) -> None:
        self.session = session
        self._threads = threads
        config = session.config
        self._inputs = session.wants("forward", "input")
        self._outputs = session.wants("forward", "output")
        self._values = config.task != "structure"
        self._backward = "backward" in config.directions and self._values

    def record(
        self,
        prefix: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: Stack,
    ) -> Any:
        """Run ``function(*args, **kwargs)`` and record the call.

        Args:
            prefix: The name of the call without its count, such as ``Functional.relu``.
            function: The function to call.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            stack: The frames of the caller.

        Returns:
            The result of the function. Its exceptions propagate, and the call is then not recorded.
        """
        call = self.begin(prefix, args, kwargs, stack)
        if call is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException:
            self.session.take_back(prefix, call.number)
            raise
        self.end(call, result)
        return result

    def begin(
        self, prefix: str, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack,
        filled: Collection[Any] = (), in_place: bool = False, *, changes_leaves: bool = False,
    ) -> RunningCall | None:  # fmt: skip
        """Record the inputs of a call before it runs; errors of the recorder are logged, not raised.

        Args:
            prefix: The name of the call without its count.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            stack: The frames of the caller.
            filled: Positions and keywords of output buffers, which hold nothing yet and are recorded as null.
            in_place: True if the call overwrites its first argument, so that its data must be copied first.
            changes_leaves: True if the caller changes leaves of the inputs before ``end``.

        Returns:
            The call to pass to ``end``, or None if it is not recorded.
        """
        session = self.session
        name = prefix
        try:
            number = session.number(prefix)
            name = f"{prefix}.{number}.forward"
            selection = session.filter
            is_recorded = selection.takes_all or selection.is_api_selected(name)
            if not is_recorded and not self._backward:
                return None
            modules = self._threads.modules
            parent = modules[-1] if modules else None
            call = RunningCall(prefix, number, stack, parent, is_recorded, selection.is_in_selected_module)
            if self._values:
                if filled:
                    args = tuple(None if i in filled else value for i, value in enumerate(args))
                    kwargs = {key: None if key in filled else value for key, value in kwargs.items()}
                with session.quiet():
                    if self._inputs and is_recorded:
                        save = session.save_for(name, self.outputs_may_change or in_place)
                        call.fields.update(
                            session.collector.inputs(name, args, kwargs, save, may_encode=not changes_leaves)
                        )
                    if self._backward:
                        self._take_sources(call, (*args, *kwargs.values()))
            return call
        except Exception as error:  # the call itself must go on whatever the recorder's error
            session.log_failure("forward input", name, error)
            return None

    def end(self, call: RunningCall, result: Any, *, is_uninitialized: bool = False) -> None:
        """Record the outputs of a call, add its record to the session and register for its gradients.

        Args:
            call: The call.
            result: Its result.
            is_uninitialized: True if the result is memory without values, which is recorded as null.
        """
        session = self.session
        name = f"{call.name}.forward"
        try:
            outputs = tuple(result) if isinstance(result, tuple) else (result,)
            with session.quiet():
                if self._values and self._outputs and call.is_recorded:
                    save = session.save_for(name, self.outputs_may_change)
                    shown = _drop_values(outputs) if is_uninitialized else outputs
                    call.fields["output"] = session.collector.outputs(name, shown, save)
                if self._values and self._is_recompute(call.stack):
                    call.fields["is_recompute"] = True
                if call.is_recorded and ("forward" in session.config.directions or not self._values):
                    session.add(name, call.fields, call.stack, self._find_parent(call))
                if self._backward:
                    self._expect_gradients(call, outputs)
        except Exception as error:  # the call's result must be returned whatever the recorder's error
            session.log_failure("forward output", name, error)

    # -- to be overridden for a framework -------------------------------------------------

    def _take_sources(self, call: RunningCall, values: tuple[Any, ...]) -> None:
        """Note, before the call, which graph nodes receive the gradients of its inputs."""

    def _expect_gradients(self, call: RunningCall, outputs: tuple[Any, ...]) -> None:
        """Register for the gradients of the call, so that each is recorded when it arrives."""

    def _is_recompute(self, stack: Stack) -> bool:
        """Return True if activation checkpointing runs the call a second time."""
        return False

    def _find_parent(self, call: RunningCall) -> str | None:
        """Return the forward record of the module that the call belongs to, or None."""
        return call.parent


def _drop_values(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return outputs with None in place of each value."""

    def blank(value: Any) -> Any:
        return [blank(item) for item in value] if isinstance(value, (list, tuple)) else None

    return tuple(map(blank, outputs))
