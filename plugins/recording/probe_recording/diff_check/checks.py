"""Checks that a recording can be compared with its golden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from probe_core.errors import UserError, make_printable
from probe_recording.diff_check.golden_run import GoldenRun
from probe_recording.settings.config import COMPARED_TASKS, Config, check_consistency
from probe_recording.settings.diff_check_settings import DEFAULT_CALL_COUNT, DiffCheck
from probe_recording.settings.slices import describe_slices


def compare_with_golden(config: Config, golden: Path, call_count: int | None) -> Config:
    """Return the settings of a recording that is compared with a golden (``probe run --against``).

    Args:
        config: The settings.
        golden: The directory of the golden.
        call_count: Number of differing calls that keep their tensors; None for the default.

    Raises:
        UserError: The settings exclude each other.
    """
    count = DEFAULT_CALL_COUNT if call_count is None else call_count
    if count < 1:
        raise UserError(f"--keep must be a positive number of calls, not {count}.", "For example --keep 3.")
    if config.task not in COMPARED_TASKS:
        raise UserError(
            f"--against compares statistics, which the task {config.task} does not record.", "Leave --task out."
        )
    compared = replace(config, task="statistics", diff_check=DiffCheck(golden.absolute(), count, str(golden)))
    return check_consistency(compared, "--against")


def check_same_way(golden: GoldenRun, config: Config, framework: str) -> None:
    """Raise a UserError if the golden was recorded in another way.

    Args:
        golden: The golden.
        config: The settings of the recording.
        framework: The name of its framework.
    """
    is_double = bool(config.repeated.get("double"))
    if golden.path.resolve() == config.dump_path.resolve():
        raise UserError(
            f'The golden "{golden.shown_path}" is the directory of this run.', "Record into another directory."
        )
    if config.steps and not config.steps & set(golden.steps):
        steps = ", ".join(map(str, golden.steps[:9]))
        raise UserError(
            f'The golden "{golden.shown_path}" has none of the steps to record.', f"Record one of its steps: {steps}."
        )
    differences = (
        ("at level", golden.level, config.level, "Record both at the same level."),
        ("from", golden.framework, framework, "Give a golden of the same framework."),
        ("in", _name_precision(bool(golden.settings and golden.settings.double)), _name_precision(is_double),
         "Record both with --double, or both without."),
    )  # fmt: skip
    slices = describe_slices(config.slices, has_request=bool(config.request))
    if golden.slices != slices:
        raise UserError(
            f'The golden "{golden.shown_path}" holds {make_printable(golden.slices) or "whole tensors"}, and this run '
            f"would hold {slices or 'whole tensors'}.",
            'Record both with the same "slice" and "request_id", for example with --config.',
        )
    for word, golden_value, value, fix in differences:
        if golden_value and value and golden_value != value:
            raise UserError(
                f'The golden "{golden.shown_path}" was recorded {word} {golden_value}, and this run would be recorded '
                f"{word} {value}, so their calls cannot be compared.",
                fix,
            )


def _name_precision(is_double: bool) -> str:
    return "float64 (--double)" if is_double else "the script's own precision"
