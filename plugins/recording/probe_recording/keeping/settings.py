"""The settings of a recording whose last steps are kept."""

from __future__ import annotations

from dataclasses import replace

from probe_core.errors import UserError
from probe_recording.settings.config import Config


def keep_config(config: Config) -> Config:
    """Return the settings for keeping steps.

    Raises:
        UserError: The settings select something else than statistics of all steps.
    """
    if config.task != "statistics" or config.tensor_names or config.level not in ("L0", "L1", "mix"):
        raise UserError(
            f"Keeping steps records statistics at level L0, L1 or mix, not task {config.task} at level "
            f"{config.level}{' with a tensor_list' if config.tensor_names else ''}.",
            "Leave the task out, and choose one of these levels.",
        )
    if config.diff_check is not None:
        raise UserError("Keeping steps cannot be combined with a golden (bench_path).", "Leave the golden out.")
    if config.steps:
        raise UserError("Keeping steps observes every step, so no steps can be selected.", "Leave the steps out.")
    return replace(config, step_phases=True, dataloader=False, compile="eager")
