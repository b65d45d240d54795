"""Recording of collectives: their receive buffers, and asynchronous calls, which complete in ``wait``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import torch
from probe_recording.sites import Stack

from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.names import Names


def record(
    calls: TorchCallRecorder,
    names: Names,
    prefix: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    stack: Stack,
    shown: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> Any:
    """Run a collective and record it; its outputs are its arguments after it has completed.

    Args:
        calls: The recorder of calls.
        names: The names of everything that is recorded.
        prefix: The name of the call without its count.
        function: The function to call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        stack: The frames of the caller.
        shown: The arguments as the script wrote them, if they differ from ``args`` and ``kwargs``.

    Returns:
        The result of the function; handles of asynchronous calls are wrapped and record the outputs in
        ``wait``.
    """
    shown_args, shown_kwargs = shown or (args, kwargs)
    call = calls.begin(prefix, shown_args, shown_kwargs, stack, find_output_buffers(prefix, names))
    if call is None:
        return function(*args, **kwargs)
    try:
        result = function(*args, **kwargs)
    except BaseException:
        calls.session.take_back(prefix, call.number)
        raise
    outputs = (*shown_args, *shown_kwargs.values())
    if isinstance(result, torch.distributed.Work):
        return RecordedWork(result, lambda: calls.end(call, outputs))
    if isinstance(result, list) and result and all(isinstance(w, torch.distributed.Work) for w in result):
        waiting = set(range(len(result)))

        def record_outputs(number: int) -> None:
            waiting.discard(number)
            if not waiting:
                calls.end(call, outputs)

        return [RecordedWork(work, lambda n=number: record_outputs(n)) for number, work in enumerate(result)]  # type: ignore[misc]
    calls.end(call, outputs)
    return result


def find_output_buffers(name: str, names: Names) -> Collection[Any]:
    """Return positions and keywords of the buffers that the collective ``name`` fills."""
    positions = names.receives.get(name.rpartition(".")[2])
    return (*positions, *names.receive_keywords) if positions is not None else ()


_Work: Any = torch.distributed.Work if torch.distributed.is_available() else object


class RecordedWork(_Work):  # type: ignore[misc]
    """A handle of an asynchronous collective that records the outputs after the first ``wait``.

    Args:
        work: The handle of torch.distributed.
        done: A callback that records the outputs.
    """

    def __init__(self, work: Any, done: Callable[[], None]) -> None:
        super().__init__()
        self._work = work
        self._done: Callable[[], None] | None = done

    def wait(self, timeout: timedelta | None = None) -> Any:
        """Wait for the collective, and record its outputs the first time."""
        result = self._work.wait(timeout) if timeout is not None else self._work.wait()
        done, self._done = self._done, None
        if done is not None:
            done()
        return result

    def is_completed(self) -> Any:
        """See ``torch.distributed.Work.is_completed``."""
        return self._work.is_completed()

    def is_success(self) -> Any:
        """See ``torch.distributed.Work.is_success``."""
        return self._work.is_success()

    def exception(self) -> Any:
        """See ``torch.distributed.Work.exception``."""
        return self._work.exception()

    def source_rank(self) -> Any:
        """See ``torch.distributed.Work.source_rank``."""
        return self._work.source_rank()

    def result(self) -> Any:
        """See ``torch.distributed.Work.result``."""
        return self._work.result()

    def synchronize(self) -> Any:
        """See ``torch.distributed.Work.synchronize``."""
        return self._work.synchronize()

    def get_future(self) -> Any:
        """See ``torch.distributed.Work.get_future``."""
        return self._work.get_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)
