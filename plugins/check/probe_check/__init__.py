"""Tools that check what surrounds a training.

Scripts import the names below; the modules of the package may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_check.checkpoint.comparison import compare_checkpoints as compare_checkpoints
    from probe_check.config_check.checker import ConfigChecker as ConfigChecker
    from probe_check.monitor.conversion import csv2db as csv2db
    from probe_check.monitor.conversion import csv2tensorboard_by_step as csv2tensorboard_by_step
    from probe_check.monitor.trainer import TrainerMon as TrainerMon


__getattr__ = create_exporter(
    __name__,
    {
        "checkpoint.comparison": "compare_checkpoints",
        "config_check.checker": "ConfigChecker",
        "monitor.conversion": "csv2db csv2tensorboard_by_step",
        "monitor.trainer": "TrainerMon",
    },
)
