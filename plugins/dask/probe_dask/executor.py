"""The workers of a dask cluster as a pool."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from typing import Any

from probe_core.errors import UserError
from probe_core.plugins.specs import Place, Pool

PATIENCE = 15
"""Seconds until a scheduler that does not answer is given up."""


class Dask:
    """Runs calls on the workers of the cluster whose scheduler is named."""

    place = Place.CLUSTER

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """Connect to the scheduler at an address such as ``tcp://host:8786``.

        Raises:
            UserError: No address, no answer, or a cluster without workers.
        """
        if scheduler is None:
            raise UserError(
                "The executor dask needs a scheduler.",
                "Start one with 'dask scheduler', and give its address: --scheduler tcp://host:8786.",
            )
        client = _connect(scheduler)
        threads = sum(
            worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
        )
        if not threads:
            client.close()
            raise UserError(
                f"The scheduler at {scheduler} has no workers.",
                f"Start some with 'dask worker {scheduler}', where probe is installed too.",
            )
        return Pool(_Workers(client), min(jobs, threads) if jobs else threads)


def _connect(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise UserError(
            "The package distributed is not installed.", "Install it with: pip install distributed"
        ) from None
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def connect() -> None:
        try:
            client = Client(scheduler, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
            answer.set_result(client)
        except Exception as error:
            answer.set_exception(error)

    # of its own, for whoever listens there and is no scheduler may let us wait without end
    threading.Thread(target=connect, name="probe-dask", daemon=True).start()
    try:
        return answer.result(PATIENCE)
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else "no answer"
        raise UserError(
            f"There is no dask scheduler at {scheduler}: {why[:200]}.",
            "Check the address, such as tcp://host:8786, and that the scheduler runs.",
        ) from None


class _Workers(concurrent.futures.Executor):
    """The cluster with the interface of ``concurrent.futures``; shutting it down leaves the cluster alone."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._under_way: set[Any] = set()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have a worker call the function."""
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
        """Pass on what a call came to: its result, what it raised, or that the cluster lost it."""
        self._under_way.discard(call)
        if answer.cancelled() or not answer.set_running_or_notify_cancel():
            return
        try:
            if call.status in ("cancelled", "lost"):
                raise concurrent.futures.CancelledError
            answer.set_result(call.result(timeout=PATIENCE))
        except BaseException as error:  # CancelledError is no Exception
            answer.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what has not ended, and let the scheduler go."""
        if self._client.status == "running" and self._under_way:
            if cancel_futures:
                self._client.cancel(list(self._under_way))
            elif wait:
                concurrent.futures.wait(self._under_way)
        self._client.close(timeout=2)


def _give_up(answer: concurrent.futures.Future[Any]) -> None:
    answer.set_exception(concurrent.futures.CancelledError())
