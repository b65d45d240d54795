"""One call of an API, recorded: its inputs before it runs, its outputs after, its gradients later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import probe_recording
from probe_recording import Backward, Call, Stack, Threads, lines_of

from probe_mindspore import compat
from probe_mindspore.capture.gradients import attach, sources_of, tensors_in
from probe_mindspore.session import Session


class Calls(probe_recording.Calls[Session]):
    """Records calls into a session."""

    fleeting = True

    def __init__(self, session: Session, threads: Threads) -> None:
        super().__init__(session, threads)
        self._backward = self._backward and compat.has_nodes()

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
        call = self.begin(prefix, args, kwargs, stack)
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
        self.end(call, args[0] if result is None and in_place and args else result)
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

    def _take_sources(self, call: Call, values: tuple[Any, ...]) -> None:
        call.sources = sources_of(values)

    def _expect_gradients(self, call: Call, outputs: tuple[Any, ...]) -> None:
        """Have the gradients told: there is a place for each tensor that the call gave out and took in."""
        tensors = tensors_in(outputs)
        size = len(tensors), len(call.sources)
        key = f"{call.name}.backward"
        backward = partial(Backward, self.session, key, call.parent, size, call.inside)
        attach(tensors, call.sources, backward, self.session.quiet)

    def _is_recompute(self, stack: Stack) -> bool:
        return compat.is_recompute(stack)
