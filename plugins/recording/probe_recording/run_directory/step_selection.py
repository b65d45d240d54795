"""The selection of steps by a configuration (docs/configuration.md#steps-and-ranks)."""

from __future__ import annotations

from probe_recording.messages import Notices
from probe_recording.run_directory.directory import check_place
from probe_recording.run_directory.process import Process
from probe_recording.settings.config import Config


def has_later_steps(config: Config, step: int) -> bool:
    """Return True if a step after this one is selected by its number."""
    return bool(config.steps) and step < max(config.steps)


def is_past_last_step(config: Config, step: int) -> bool:
    """Return True if neither this step nor a later one is selected."""
    return bool(config.steps) and step > max(config.steps)


def is_step_selected(config: Config, step: int, notices: Notices) -> bool:
    """Return True if a step is selected; print once that all selected steps are over."""
    if not config.steps or step in config.steps:
        return True
    if is_past_last_step(config, step):
        notices.print_once(
            f"probe: step {max(config.steps)} was the last step to record; later steps are not recorded."
        )
    return False


def check_later_steps(config: Config, step: int, process: Process) -> None:
    """Check at the first start that a later step can be written, so that a mistake is reported early.

    Raises:
        UserError: A later step of the process is selected, and the directory cannot be written.
    """
    if has_later_steps(config, step) and process.is_selected(config.ranks) and config.read_enabled():
        check_place(config.dump_path)
