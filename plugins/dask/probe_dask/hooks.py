"""Hooks of probe-dask: the executor ``dask``."""

from __future__ import annotations

from probe_ranks.api import ExecutorSpec

from probe_core.plugins.hookspecs import hookimpl


@hookimpl
def probe_executors() -> list[ExecutorSpec]:
    """Return the executor that runs on the workers of a dask cluster."""
    return [
        ExecutorSpec(
            "dask",
            "workers of the dask cluster that --scheduler names",
            "probe_dask.executor:Dask",
            has_scheduler=True,
            killed=("KilledWorker",),
        )
    ]
