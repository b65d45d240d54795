"""Tools that observe a training.

Scripts import the names below; the modules of the package may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_watch.grad_probe.comparison import GradComparator as GradComparator
    from probe_watch.grad_probe.comparison import GradComparison as GradComparison
    from probe_watch.grad_probe.comparison import compare_gradients as compare_gradients


__getattr__ = create_exporter(__name__, {"grad_probe.comparison": "GradComparator GradComparison compare_gradients"})
