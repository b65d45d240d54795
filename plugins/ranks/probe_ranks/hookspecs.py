"""The hooks of probe-ranks, for places to run comparisons, and for observers of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_core.model.report import Report
    from probe_ranks.specs import ExecutorSpec

KINDS = {"executors": "probe_ranks.specs:ExecutorSpec"}
TRIALS = {"executors": "probe_ranks.testing:check_executor"}


@hookspec
def probe_executors() -> list[ExecutorSpec]:  # type: ignore[empty-body]
    """Return executors, selected with ``--executor NAME``, which run comparisons, for example on a cluster.

    The factory makes an object whose ``open`` returns workers with the interface of ``concurrent.futures``.

    Example::

        return [ExecutorSpec(name="cluster", summary="my cluster", factory="my_package:Cluster")]
    """


@hookspec
def probe_run_started(target: str, golden: str) -> None:
    """Observe that a comparison begins. Exceptions are reported as warnings and otherwise ignored.

    Example::

        print("comparing", target, "with", golden)
    """


@hookspec
def probe_run_finished(report: Report) -> None:
    """Observe that a comparison has ended. Exceptions are reported as warnings and otherwise ignored.

    Example::

        print(report.counts.rows, "rows")
    """
