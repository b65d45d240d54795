"""The workers of a dask cluster as a pool."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable
from typing import Any

from probe_core.errors import UserError
from probe_core.executors import Place, Pool

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
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        return Client(scheduler, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError, concurrent.futures.TimeoutError) as error:
        why = str(error).splitlines()[0] if str(error) else "no answer"
        raise UserError(
            f"There is no dask scheduler at {scheduler}: {why[:200]}.",
            "Check the address, such as tcp://host:8786, and that the scheduler runs.",
        ) from None


class _Workers(concurrent.futures.Executor):
    """The cluster with the interface of ``concurrent.futures``; shutting it down leaves the cluster alone."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._calls = client.get_executor(pure=False, retries=0)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have a worker call the function."""
        if self._client.status in ("closed", "closing"):
            lost: concurrent.futures.Future[Any] = concurrent.futures.Future()
            lost.cancel()
            lost.set_running_or_notify_cancel()
            return lost
        return self._calls.submit(function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what has not ended, and let the scheduler go."""
        if self._client.status == "running":
            self._calls.shutdown(wait=wait and not cancel_futures)
        self._client.close(timeout=2)
