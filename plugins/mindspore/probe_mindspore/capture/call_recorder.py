"""Recording of API calls: inputs before the call, outputs after it, gradients when they arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from probe_recording.api import Backward, CallRecorder
from probe_recording.capture.call_recorder import RunningCall
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack, list_stack_lines

from probe_mindspore import compat
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.capture.gradients import attach, list_sources, list_tensors
from probe_mindspore.session import MindSporeSession


class MindSporeCallRecorder(CallRecorder[MindSporeSession]):
    """Writer of calls into a session.

    Args:
        session: The step that is recorded.
        threads: State of the recorder in each thread.
        draws: The watcher of the random numbers that calls draw.
    """

    outputs_may_change = True

    def __init__(self, session: MindSporeSession, threads: Threads, draws: DrawWatch) -> None:
        super().__init__(session, threads)
        self._draws = draws
        self._backward = self._backward and compat.has_nodes()

    def record(
        self, prefix: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        stack: Stack, in_place: bool = False,
    ) -> Any:  # fmt: skip
        """Run ``function`` and record the call; a call without any tensor is not recorded.

        Operators run asynchronously. Their errors are raised here, with the name of the call.

        Args:
            prefix: The name of the record, without its count.
            function: The function to call.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            stack: The frames of the caller.
            in_place: True if the function writes its first argument.

        Returns:
            The result of the function.
        """
        argument_values = (*args, *kwargs.values())
        call = self.begin(prefix, args, kwargs, stack)
        if call is None:
            return function(*args, **kwargs)
        place = self._draws.place
        try:
            result = function(*args, **kwargs)
            outputs = list_tensors((result,))
            self._wait(call, outputs or list_tensors(argument_values))
        except BaseException:
            self.session.take_back(prefix, call.number)
            raise
        if not outputs and not list_tensors(argument_values):
            self.session.take_back(prefix, call.number)
            return result
        self._draws.record(f"{call.name}.forward", place)
        self.end(call, args[0] if result is None and in_place and args else result)
        return result

    def _wait(self, call: RunningCall, tensors: list[Any]) -> None:
        """Wait for the operators of the call; if one raises an error, add the name of the call to it."""
        try:
            with self.session.quiet():
                compat.wait_for(tensors)
        except Exception as error:
            place = list_stack_lines(call.stack)[0].replace(" \n", "")
            message = f"{error}\n\nprobe: raised by {call.name}.forward, called at {place}"
            error.args = (message, *error.args[1:])
            raise

    def _take_sources(self, call: RunningCall, values: tuple[Any, ...]) -> None:
        call.sources = list_sources(values)

    def _expect_gradients(self, call: RunningCall, outputs: tuple[Any, ...]) -> None:
        """Record the gradients of the call's outputs and inputs when they arrive."""
        tensors = list_tensors(outputs)
        size = len(tensors), len(call.sources)
        key = f"{call.name}.backward"
        backward = partial(Backward, self.session, key, call.parent, size, call.is_in_selected_module)
        attach(tensors, call.sources, backward, self.session.quiet)

    def _is_recompute(self, stack: Stack) -> bool:
        return compat.is_recompute(stack)
