"""Processes that compare calls while the training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from probe_precheck.supervisor import Job, LostJob, ProcessPool

from probe_core.errors import describe_error
from probe_pytorch.dispatch_check.comparison import CallComparison, get_call_comparer
from probe_pytorch.dispatch_check.operators import SkipReason
from probe_pytorch.dispatch_check.reference import DispatchedCall

CALL_TIMEOUT_SECONDS = 600.0
"""Seconds that one call may take."""

EXIT_TIMEOUT_SECONDS = 2.0
"""Seconds that processes get to end by themselves when all calls are compared."""


class ComparerSetup:
    """Setup of a process; it can be pickled."""

    def __call__(self, slot: int) -> Callable[[DispatchedCall], CallComparison]:
        """Return the function that compares a call."""
        import torch

        torch.set_num_threads(1)  # processes share the cores
        return get_call_comparer().compare


class WorkerPool:
    """Processes that compare calls, with a limit of the bytes that wait for them.

    Results are delivered in the order of the calls, by a thread of the pool.

    Args:
        processes: The number of processes.
        limit_bytes: Bytes of calls that may wait at a time; a call beyond it waits until others are compared.
        deliver: Receives each call with its result.

    Raises:
        UserError: No process can be started.
    """

    def __init__(self, processes: int, limit_bytes: int, deliver: Callable[[int, CallComparison], None]) -> None:
        self._limit_bytes = limit_bytes
        self._deliver = deliver
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self._sizes: dict[int, int] = {}
        self._ready: dict[int, CallComparison] = {}
        self._broken = ""
        self._processes = ProcessPool(ComparerSetup(), processes, CALL_TIMEOUT_SECONDS, most=1 << 30)
        try:
            self._processes.set_up()
        except BaseException:
            self._processes.end()
            raise
        self._thread = threading.Thread(target=self._collect, name="probe-dispatch-check", daemon=True)
        self._thread.start()

    @property
    def broken(self) -> str:
        """The reason why no more calls are compared; empty while they are."""
        return self._broken

    def put(self, call: DispatchedCall) -> bool:
        """Add a call, once there is room for its bytes; return False if no more calls are compared."""
        size = measure_call_size(call)
        with self._room:
            self._room.wait_for(
                lambda: self._broken or not self._sizes or self._waiting_bytes + size <= self._limit_bytes
            )
            if self._broken:
                return False
            self._waiting_bytes += size
            self._sizes[call.number] = size
        if self._processes.put(Job(call.number, call)):
            return True
        with self._room:
            self._waiting_bytes -= self._sizes.pop(call.number, 0)
        return False

    def finish(self) -> None:
        """Wait until all calls are compared, and end the processes."""
        self._processes.close()
        while self._thread.is_alive():
            self._thread.join(1.0)  # with a limit, so that Ctrl-C is seen
        self._processes.end(EXIT_TIMEOUT_SECONDS)

    def abandon(self) -> None:
        """End the processes at once; calls that wait are lost."""
        with self._room:
            self._broken = self._broken or "the check was interrupted"
            self._room.notify_all()
        self._processes.close()
        self._processes.wake()
        self._thread.join(EXIT_TIMEOUT_SECONDS)
        self._processes.end()

    def _collect(self) -> None:
        try:
            while not self._processes.is_done and not self._broken:
                for job, result in self._processes.collect_finished():
                    self._add_result(job.key, result)
        except Exception as error:
            self._deliver_lost_calls(describe_error(error))
        finally:
            self._deliver_lost_calls(self._broken)

    def _add_result(self, number: int, result: Any) -> None:
        if isinstance(result, LostJob):
            result = CallComparison(reason=SkipReason.LOST, detail=result.reason)
        with self._room:
            self._ready[number] = result
            while self._sizes and (first := next(iter(self._sizes))) in self._ready:
                self._waiting_bytes -= self._sizes.pop(first)
                self._deliver(first, self._ready.pop(first))
            self._room.notify_all()

    def _deliver_lost_calls(self, reason: str) -> None:
        """Deliver the calls that are left as lost, and take no more."""
        with self._room:
            if not self._sizes and not reason:
                return
            self._broken = reason or "its processes have ended"
            for number in list(self._sizes):
                lost = CallComparison(reason=SkipReason.LOST, detail=self._broken)
                self._deliver(number, self._ready.pop(number, lost))
            self._sizes.clear()
            self._waiting_bytes = 0
            self._room.notify_all()


def measure_call_size(call: DispatchedCall) -> int:
    """Return the bytes of a call: of its arguments and its results."""
    arguments = sum(buffer.numel() * buffer.element_size() for buffer in call.copy.buffers)
    results = sum(getattr(getattr(value, "values", None), "nbytes", 0) for value in call.results)
    return arguments + results
