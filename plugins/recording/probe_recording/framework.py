"""Names for plugins that record programs of a framework, each imported on first use.

They complete ``probe_recording.api``, which has the names for every recorder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_recording.diff_check.checks import compare_with_golden
    from probe_recording.diff_check.golden_run import read_golden_run
    from probe_recording.process_start.late_claim import LateClaim
    from probe_recording.process_start.starter import ProcessStarter
    from probe_recording.recorder.recorded_block import RecordedBlock, create_block_config, report_recording
    from probe_recording.recorder.recorder import new_recorder
    from probe_recording.recorder.step_follower import StepFollower
    from probe_recording.run_directory.directory import SINGLE, Lock, StepDirectory, remove_earlier_steps
    from probe_recording.run_directory.earlier_run import settle_earlier_run
    from probe_recording.sending.session import SendingMixin
    from probe_recording.sessions.loss import format_steps
    from probe_recording.settings.config import LEVELS, TASKS, ConfigWarning, load_config, parse_steps
    from probe_recording.settings.destination import create_destination, replace_destination
    from probe_recording.settings.recorded_settings import RecordedSettings, read_settings

__all__ = [
    "LEVELS",
    "SINGLE",
    "TASKS",
    "ConfigWarning",
    "LateClaim",
    "Lock",
    "ProcessStarter",
    "RecordedBlock",
    "RecordedSettings",
    "SendingMixin",
    "StepDirectory",
    "StepFollower",
    "compare_with_golden",
    "create_block_config",
    "create_destination",
    "format_steps",
    "load_config",
    "new_recorder",
    "parse_steps",
    "read_golden_run",
    "read_settings",
    "remove_earlier_steps",
    "replace_destination",
    "report_recording",
    "settle_earlier_run",
]

__getattr__ = create_exporter(
    __name__,
    {
        "diff_check.checks": "compare_with_golden",
        "diff_check.golden_run": "read_golden_run",
        "process_start.late_claim": "LateClaim",
        "process_start.starter": "ProcessStarter",
        "recorder.recorded_block": "RecordedBlock create_block_config report_recording",
        "recorder.recorder": "new_recorder",
        "recorder.step_follower": "StepFollower",
        "run_directory.directory": "Lock SINGLE StepDirectory remove_earlier_steps",
        "run_directory.earlier_run": "settle_earlier_run",
        "sending.session": "SendingMixin",
        "sessions.loss": "format_steps",
        "settings.config": "ConfigWarning LEVELS TASKS load_config parse_steps",
        "settings.destination": "create_destination replace_destination",
        "settings.recorded_settings": "RecordedSettings read_settings",
    },
)
