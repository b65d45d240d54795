"""Tools that check what surrounds a training.

Scripts import the names below; the modules of the package may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_check.checkpoint.comparison import compare_checkpoints
    from probe_check.config_check.checker import ConfigChecker
    from probe_check.monitor.conversion import csv2db, csv2tensorboard_by_step
    from probe_check.monitor.trainer import TrainerMon

__all__ = ["ConfigChecker", "TrainerMon", "compare_checkpoints", "csv2db", "csv2tensorboard_by_step"]

__getattr__ = create_exporter(
    __name__,
    {
        "checkpoint.comparison": "compare_checkpoints",
        "config_check.checker": "ConfigChecker",
        "monitor.conversion": "csv2db csv2tensorboard_by_step",
        "monitor.trainer": "TrainerMon",
    },
)
