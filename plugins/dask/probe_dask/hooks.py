"""What probe-dask contributes."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ExecutorSpec


@hookimpl
def probe_executors() -> list[ExecutorSpec]:
    """The workers of a dask cluster."""
    return [
        ExecutorSpec(
            "dask",
            "workers of a dask cluster, by --scheduler",
            "probe_dask.executor:Dask",
            has_scheduler=True,
            killed=("KilledWorker",),
        )
    ]
