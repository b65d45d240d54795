"""The settings of keeping the last steps, checked (docs/watch.md#the-moment-before)."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Any

from probe_core.errors import UserError, suggest_name
from probe_recording.settings.config import Config
from probe_recording.settings.destination import parse_byte_count

DEFAULT_BYTES = 256 << 20
"""Bytes that kept steps and the history of their quantities may take."""

MIN_BYTES = 1 << 20
MAX_KEPT_STEPS = 10_000
DEFAULT_EVENT_COUNT = 10
"""Number of events that a process writes; later ones are counted only."""

MAX_EVENTS = 100_000
UNCATCHABLE_SIGNALS = ("SIGKILL", "SIGSTOP")
CRASH_SIGNALS = ("SIGSEGV", "SIGFPE", "SIGILL", "SIGBUS", "SIGABRT")
"""Signals of a crash, after which no handler of Python runs."""


@dataclass(frozen=True, slots=True)
class KeepOptions:
    """The settings of keeping the last steps.

    Attributes:
        keep_last: Number of steps to keep.
        memory: Bytes that they may take.
        signal: The signal at which they are written; None for no signal.
        rerun: True to run a failing step again with tensors.
        events: Number of events that are written.
    """

    keep_last: int
    memory: int = DEFAULT_BYTES
    signal: signal.Signals | None = None
    rerun: bool = False
    events: int = DEFAULT_EVENT_COUNT


def parse_options(
    keep_last: Any,
    memory: Any = None,
    signal_name: Any = None,
    rerun: Any = False,
    events: Any = None,
    *,
    is_command: bool = False,
) -> KeepOptions:
    """Return the checked settings.

    Args:
        keep_last: Number of steps to keep.
        memory: Bytes, or a size such as ``1GiB``; None for the default.
        signal_name: The name of a signal, such as ``USR1`` or ``SIGTERM``; None for no signal.
        rerun: True to run a failing step again.
        events: Number of events to write; None for the default.
        is_command: True to name the options of ``probe run`` in messages instead of arguments.

    Raises:
        UserError: A value is of a wrong type or out of range.
    """

    def name(argument: str) -> str:
        return f"--{argument.replace('_', '-')}" if is_command else argument

    if type(rerun) is not bool:
        raise UserError(f"rerun must be True or False, not {rerun!r:.40}.", "For example rerun=True.")
    return KeepOptions(
        _number(name("keep_last"), keep_last, MAX_KEPT_STEPS),
        DEFAULT_BYTES if memory is None else _parse_bytes(name("keep_memory"), memory),
        None if signal_name is None else _parse_signal(name("signal"), signal_name),
        rerun,
        DEFAULT_EVENT_COUNT if events is None else _number(name("events"), events, MAX_EVENTS),
    )


def _number(name: str, value: Any, largest: int) -> int:
    if type(value) is not int or not 1 <= value <= largest:
        raise UserError(
            f"{name} must be a whole number from 1 to {largest:,}, not {value!r:.40}.",
            "For example 10, the number of steps before an event that are worth reading.",
        )
    return value


def _parse_bytes(name: str, value: Any) -> int:
    size = parse_byte_count(value) if isinstance(value, str) else value
    if type(size) is not int or size < MIN_BYTES:
        raise UserError(f"{name} must be a size of at least 1 MiB, not {value!r:.40}.", "For example 512MiB.")
    return size


def _parse_signal(name: str, value: Any) -> signal.Signals:
    signal_by_name = {number.name: number for number in signal.valid_signals() if isinstance(number, signal.Signals)}
    text = value.upper() if isinstance(value, str) else ""
    text = text if text.startswith("SIG") else f"SIG{text}"
    if text in (*UNCATCHABLE_SIGNALS, *CRASH_SIGNALS):
        why = "no program can handle it" if text in UNCATCHABLE_SIGNALS else "no Python code runs after a crash"
        raise UserError(
            f"{name} cannot be {text.removeprefix('SIG')}: {why}.",
            "Choose another signal, such as USR1 or TERM.",
        )
    if text not in signal_by_name:
        guess = suggest_name(text, list(signal_by_name))
        hint = f"Did you mean {guess.removeprefix('SIG')}?" if guess else "For example USR1 or TERM."
        raise UserError(f"{name} must be the name of a signal, not {value!r:.40}.", hint)
    return signal_by_name[text]


# -- the settings of a recording whose last steps are kept ------------------------------------------


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
