"""The hook of probe-ranks, for places to run comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
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
