"""One call of an API, recorded: its inputs before it runs, its outputs after, its gradients later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from probe_recording import Backward, Stack, Threads, Tree, lines_of

from probe_mindspore import compat
from probe_mindspore.capture.gradients import Source, attach, sources_of, tensors_in
from probe_mindspore.session import Session


@dataclass(slots=True, eq=False)
class Call:
    """A call that has begun and is recorded."""

    prefix: str
    number: int
    stack: Stack
    parent: str | None
    wanted: bool
    inside: bool
    fields: dict[str, Tree] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The call's name without its phase."""
        return f"{self.prefix}.{self.number}"


class Calls:
    """Records calls into a session."""

    def __init__(self, session: Session, threads: Threads) -> None:
        self.session = session
        self._threads = threads
        config = session.config
        self._inputs = session.wants("forward", "input")
        self._outputs = session.wants("forward", "output")
        self._values = config.task != "structure"
        self._backward = "backward" in config.directions and self._values and compat.has_nodes()

    def record(
        self, prefix: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        stack: Stack, in_place: bool = False,
    ) -> Any:  # fmt: skip
        """Run ``function`` and record the call; a call without any tensor is no record.

        Errors that its operators raise later are raised here, and say which call it was.

        Args:
            prefix: What the call is called, without its count.
            function: What is called, with ``args`` and ``kwargs``.
            stack: Where from.
            in_place: The call writes its first argument.
        """
        given = (*args, *kwargs.values())
        call = self._begin(prefix, args, kwargs, stack, tensors_in(given))
        if call is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
            outputs = tensors_in((result,))
            self._wait(call, outputs or tensors_in(given))
        except BaseException:
            self.session.take_back(prefix, call.number)
            raise
        if not outputs and not tensors_in(given):
            self.session.take_back(prefix, call.number)
            return result
        self._end(call, args[0] if result is None and in_place and args else result)
        return result

    def _wait(self, call: Call, tensors: list[Any]) -> None:
        """Let the operators of the call come to an end; an error of theirs is the call's."""
        try:
            with self.session.quiet():
                compat.wait_for(tensors)
        except Exception as error:
            place = lines_of(call.stack)[0].replace(" \n", "")
            said = f"{error}\n\nprobe: raised by {call.name}.forward, called at {place}"
            error.args = (said, *error.args[1:])
            raise

    def _begin(
        self, prefix: str, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack, tensors: list[Any]
    ) -> Call | None:
        """A call begins: take its inputs, unless it is not wanted. The recorder's errors stay here."""
        session = self.session
        name = prefix
        try:
            number = session.number(prefix)
            name = f"{prefix}.{number}.forward"
            wanted = session.filter.api(name)
            if not wanted and not self._backward:
                return None
            modules = self._threads.modules
            call = Call(
                prefix, number, stack, modules[-1] if modules else None, wanted, session.filter.inside
            )
            if self._values:
                with session.quiet():
                    if self._inputs and wanted:
                        save = session.save_for(name, fleeting=True)
                        call.fields["input_args"] = session.collector.arguments(args, f"{name}.input", save)
                        call.fields["input_kwargs"] = session.collector.keywords(
                            kwargs, f"{name}.kwargs", save
                        )
                    if self._backward:
                        call.sources = sources_of(tensors)
            return call
        except Exception as error:
            session.failed("forward input", name, error)
            return None

    def _end(self, call: Call, result: Any) -> None:
        """A call has ended: take its outputs, add the record, and wait for its gradients."""
        session = self.session
        name = f"{call.name}.forward"
        try:
            outputs = result if isinstance(result, tuple) else (result,)
            with session.quiet():
                if self._values and self._outputs and call.wanted:
                    call.fields["output"] = session.collector.arguments(
                        outputs, f"{name}.output", session.save_for(name, fleeting=True)
                    )
                if self._values and compat.is_recompute(call.stack):
                    call.fields["is_recompute"] = True
                if call.wanted and ("forward" in session.config.directions or not self._values):
                    session.add(name, call.fields, call.stack, call.parent)
                if self._backward:
                    tensors = tensors_in(outputs)
                    key = f"{call.name}.backward"
                    size = len(tensors), len(call.sources)
                    attach(
                        tensors,
                        call.sources,
                        lambda: receiver(session, key, call.parent, size, call.inside),
                        session.quiet,
                    )
        except Exception as error:
            session.failed("forward output", name, error)


def receiver(session: Session, key: str, parent: str | None, size: tuple[int, int], inside: bool) -> Backward:
    """What is told of the gradients of a call: a place for each tensor it gave out and took in."""
    above = parent.replace(".forward.", ".backward.") if parent else None
    return Backward(session, key, above, size, inside)
