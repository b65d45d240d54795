"""One call of an API, recorded: its inputs before it runs, its outputs after, its gradients later."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from probe_recording.leaves import Tree
from probe_recording.session import Session
from probe_recording.sites import Stack
from probe_recording.threads import Threads

S = TypeVar("S", bound=Session)


@dataclass(slots=True, eq=False)
class Call:
    """A call that has begun and is recorded.

    Attributes:
        wanted: True where its forward is recorded.
        inside: True inside a module that is listed, where everything is wanted.
        sources: Where the gradients of its inputs go, as the framework says.
        first_new: The number of the first node that the call can make, where a framework counts them.
    """

    prefix: str
    number: int
    stack: Stack
    parent: str | None
    wanted: bool
    inside: bool
    fields: dict[str, Tree] = field(default_factory=dict)
    sources: list[Any] = field(default_factory=list)
    first_new: int = 0

    @property
    def name(self) -> str:
        """The call's name without its phase."""
        return f"{self.prefix}.{self.number}"


class Calls(Generic[S]):
    """Records calls into a session; a framework with gradients says how it follows them.

    Attributes:
        fleeting: True where the data of a value may have changed by the time its record is complete.
    """

    fleeting = False

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
        """Run ``function`` and record the call.

        Args:
            prefix: The name of the call without its count, such as ``Functional.relu``.
            function: The function that is called, with ``args`` and ``kwargs``.
            stack: The frames of the caller.
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
        filled: Collection[Any] = (), in_place: bool = False,
    ) -> Call | None:  # fmt: skip
        """Take the inputs of a call that begins, unless it is not wanted; the recorder's errors stay here.

        Args:
            prefix: The name of the call without its count.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            stack: The frames of the caller.
            filled: Positions and keywords of buffers that the call fills.
            in_place: True where the call writes its first argument.
        """
        session = self.session
        name = prefix
        try:
            number = session.number(prefix)
            name = f"{prefix}.{number}.forward"
            wanted = session.filter.api(name)
            if not wanted and not self._backward:
                return None
            modules = self._threads.modules
            parent = modules[-1] if modules else None
            call = Call(prefix, number, stack, parent, wanted, session.filter.inside)
            if self._values:
                if filled:
                    args = tuple(None if i in filled else value for i, value in enumerate(args))
                    kwargs = {key: None if key in filled else value for key, value in kwargs.items()}
                with session.quiet():
                    if self._inputs and wanted:
                        save = session.save_for(name, self.fleeting or in_place)
                        collector = session.collector
                        call.fields["input_args"] = collector.arguments(args, f"{name}.input", save)
                        call.fields["input_kwargs"] = collector.keywords(kwargs, f"{name}.kwargs", save)
                    if self._backward:
                        self._take_sources(call, (*args, *kwargs.values()))
            return call
        except Exception as error:  # whatever it is, the call itself goes on
            session.failed("forward input", name, error)
            return None

    def end(self, call: Call, result: Any) -> None:
        """Take the outputs of a call that has ended, add its record, and wait for its gradients."""
        session = self.session
        name = f"{call.name}.forward"
        try:
            outputs = tuple(result) if isinstance(result, tuple) else (result,)
            with session.quiet():
                if self._values and self._outputs and call.wanted:
                    save = session.save_for(name, self.fleeting)
                    call.fields["output"] = session.collector.arguments(outputs, f"{name}.output", save)
                if self._values and self._is_recompute(call.stack):
                    call.fields["is_recompute"] = True
                if call.wanted and ("forward" in session.config.directions or not self._values):
                    session.add(name, call.fields, call.stack, self._parent_of(call))
                if self._backward:
                    self._expect_gradients(call, outputs)
        except Exception as error:  # whatever it is, the call itself has its result
            session.failed("forward output", name, error)

    # -- what a framework says -------------------------------------------------------------

    def _take_sources(self, call: Call, values: tuple[Any, ...]) -> None:
        """Note where the gradients of the inputs go, before the call."""

    def _expect_gradients(self, call: Call, outputs: tuple[Any, ...]) -> None:
        """Have the gradients of the call told as they arrive."""

    def _is_recompute(self, stack: Stack) -> bool:
        """Return True where a checkpoint runs the call a second time."""
        return False

    def _parent_of(self, call: Call) -> str | None:
        """Return the module that the call belongs to."""
        return call.parent
