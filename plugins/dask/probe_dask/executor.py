"""Executor that runs calls on the workers of a dask cluster."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from probe_ranks.api import Place, Pool

from probe_core.errors import UserError

SCHEDULER_TIMEOUT_SECONDS = 15
"""Seconds to wait for an answer of the scheduler."""


class Dask:
    """Executor ``dask``: the workers of the cluster whose scheduler is given."""

    place = Place.CLUSTER

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """Connect to a scheduler.

        Args:
            jobs: Largest number of calls at a time; 0 for one on each thread of the workers.
            scheduler: Its address, such as ``tcp://host:8786``.

        Returns:
            The workers, and the number of calls that may run at a time.

        Raises:
            UserError: There is no address, no answer within ``SCHEDULER_TIMEOUT_SECONDS``, or no worker.
        """
        if scheduler is None:
            raise UserError(
                "The executor dask needs a scheduler, so nothing was compared.",
                "Start one with 'dask scheduler', and give its address: --scheduler tcp://host:8786.",
            )
        client = _connect(scheduler)
        threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
        if not threads:
            client.close()
            raise UserError(
                f"The scheduler at {scheduler} has no workers, so nothing was compared.",
                f"Start one on a machine where probe is installed: dask worker {scheduler}",
            )
        return Pool(_Workers(client), min(jobs, threads) if jobs else threads)


def _connect(scheduler: str) -> Any:
    """Return a client of the scheduler at this address.

    Raises:
        UserError: The package distributed is not installed, or the scheduler does not answer.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UserError(
            "The package distributed is not installed, so the executor dask cannot be used.",
            "Install it with: pip install distributed",
        ) from None
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def connect() -> None:
        client = object.__new__(Client)
        try:
            Client.__init__(  # type: ignore[no-untyped-call]
                client, scheduler, timeout=SCHEDULER_TIMEOUT_SECONDS, set_as_default=False
            )
            answer.set_result(client)
        except Exception as error:
            # an open client that is garbage closes itself wherever it is collected; where another is being
            # started, it waits for the lock of that start without end
            with suppress(Exception):
                client.close()  # type: ignore[no-untyped-call]
            if not answer.cancelled():
                answer.set_exception(error)

    # in a separate thread, because a server that is not a dask scheduler may never answer
    threading.Thread(target=connect, name="probe-dask", daemon=True).start()
    try:
        return answer.result(SCHEDULER_TIMEOUT_SECONDS)
    except Exception as error:
        answer.cancel()
        reason = str(error).splitlines()[0] if str(error) else "no answer"
        raise UserError(
            f"There is no dask scheduler at {scheduler}, so nothing was compared: {reason[:200]}.",
            "Check that the scheduler runs, and that its address is like tcp://host:8786.",
        ) from None


class _Workers(concurrent.futures.Executor):
    """Workers of a cluster with the interface of ``concurrent.futures``.

    Shutting it down disconnects from the scheduler; the cluster goes on running.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._under_way: set[Any] = set()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function on a worker; see ``concurrent.futures.Executor.submit``."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if self._client.status in ("closed", "closing"):
            _give_up(answer)
            return answer
        call = self._client.submit(function, *args, **kwargs, pure=False, retries=0)
        self._under_way.add(call)
        answer.add_done_callback(lambda _: call.cancel() if answer.cancelled() else None)
        call.add_done_callback(lambda _: self._settle(call, answer))
        return answer

    def _settle(self, call: Any, answer: concurrent.futures.Future[Any]) -> None:
        """Copy the result of a call, or its exception, to the future that ``submit`` returned.

        A call that the cluster lost ends in CancelledError.
        """
        self._under_way.discard(call)
        if answer.cancelled() or not answer.set_running_or_notify_cancel():
            return
        try:
            if call.status in ("cancelled", "lost"):
                raise concurrent.futures.CancelledError
            answer.set_result(call.result(timeout=SCHEDULER_TIMEOUT_SECONDS))
        except BaseException as error:  # CancelledError is not an Exception
            answer.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel or await the calls that have not ended, and disconnect from the scheduler."""
        if self._client.status == "running" and self._under_way:
            if cancel_futures:
                self._client.cancel(list(self._under_way))
            elif wait:
                concurrent.futures.wait(self._under_way)
        self._client.close(timeout=2)


def _give_up(answer: concurrent.futures.Future[Any]) -> None:
    """End a future in CancelledError."""
    answer.set_exception(concurrent.futures.CancelledError())
