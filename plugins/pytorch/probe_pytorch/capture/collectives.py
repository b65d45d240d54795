"""torch.distributed: what a collective fills, and asynchronous ones, complete only after their wait."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import torch
from probe_recording import Stack

from probe_pytorch.capture.calls import Calls
from probe_pytorch.capture.names import Names


def record(
    calls: Calls,
    names: Names,
    prefix: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    stack: Stack,
    shown: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> Any:
    """Run a collective and record it; its outputs are its arguments, as they are once it is done."""
    shown_args, shown_kwargs = shown or (args, kwargs)
    call = calls.begin(prefix, shown_args, shown_kwargs, stack, filled_by(prefix, names))
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

        def done(number: int) -> None:
            waiting.discard(number)
            if not waiting:
                calls.end(call, outputs)

        return [RecordedWork(work, lambda n=number: done(n)) for number, work in enumerate(result)]  # type: ignore[misc]
    calls.end(call, outputs)
    return result


def filled_by(name: str, names: Names) -> Collection[Any]:
    """Positions and keywords of the buffers that the collective ``name`` fills."""
    positions = names.receives.get(name.rpartition(".")[2])
    return (*positions, *names.receive_keywords) if positions is not None else ()


_Work: Any = torch.distributed.Work if torch.distributed.is_available() else object


class RecordedWork(_Work):  # type: ignore[misc]
    """The handle of an asynchronous collective, which has it recorded once it was waited for."""

    def __init__(self, work: Any, done: Callable[[], None]) -> None:
        super().__init__()
        self._work = work
        self._done: Callable[[], None] | None = done

    def wait(self, timeout: timedelta | None = None) -> Any:
        """Wait, and record the first time."""
        result = self._work.wait(timeout) if timeout is not None else self._work.wait()
        done, self._done = self._done, None
        if done is not None:
            done()
        return result

    def is_completed(self) -> Any:
        """As of the handle itself."""
        return self._work.is_completed()

    def is_success(self) -> Any:
        """As of the handle itself."""
        return self._work.is_success()

    def exception(self) -> Any:
        """As of the handle itself."""
        return self._work.exception()

    def source_rank(self) -> Any:
        """As of the handle itself."""
        return self._work.source_rank()

    def result(self) -> Any:
        """As of the handle itself."""
        return self._work.result()

    def synchronize(self) -> Any:
        """As of the handle itself."""
        return self._work.synchronize()

    def get_future(self) -> Any:
        """As of the handle itself."""
        return self._work.get_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)
