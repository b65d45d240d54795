"""The hook of probe-diagnosis, for detectors of kinds of causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_diagnosis.specs import DetectorSpec

KINDS = {"detectors": "probe_diagnosis.specs:DetectorSpec"}
TRIALS = {"detectors": "probe_diagnosis.testing:try_detector"}


@hookspec
def probe_detectors() -> list[DetectorSpec]:  # type: ignore[empty-body]
    """Return detectors of kinds of causes. Called when a step of a rank was compared.

    The factory makes a ``probe_diagnosis.api.Detector``; docs/detector-plugin.md writes one.

    Example::

        return [DetectorSpec("dead_relu", "activations that are all zero in one run",
                             "my_package.dead:DeadRelu")]
    """
