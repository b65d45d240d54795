"""The options of ``probe run`` that keep the last steps."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from probe_recording import DEFAULT_PATH, Config, KeepOptions, keep_config, parse_options

from probe_core.cli import console
from probe_core.errors import UserError, counted

if TYPE_CHECKING:
    from probe_pytorch.follower import Follower
    from probe_pytorch.keeping.keeping_recorder import KeepingFollower

KEPT_PATH = DEFAULT_PATH
"""The directory of the run, unless ``-o`` gives another."""


def keep_options(
    keep_last: int | None, memory: str | None, signal: str | None, events: int | None, *, rerun: bool
) -> KeepOptions | None:
    """Return the settings of keeping; None if no steps are kept.

    Raises:
        UserError: An option has a wrong value, or belongs to one that is missing.
    """
    if rerun:
        raise UserError(
            "--rerun needs a step function, and probe run does not know one.",
            "In the script, write watch = probe_pytorch.watch(10, model, optimizer, rerun=True), and "
            "watch.step(function, batch) for each step.",
        )
    if keep_last is None:
        if memory is not None or signal is not None or events is not None:
            raise UserError(
                "--keep-memory, --signal and --events belong to --keep-last.", "Give --keep-last 10."
            )
        return None
    return parse_options(keep_last, memory, signal, events=events, is_command=True)


def refuse_with_keeping(step: str | None, send_to: str | None) -> None:
    """Raise a UserError for options that contradict ``--keep-last``."""
    for name, value in (("--step", step), ("--send-to", send_to)):
        if value is not None:
            raise UserError(
                f"{name} and --keep-last exclude each other, because every step is kept in memory.",
                f"Leave out one of {name} and --keep-last.",
            )


def new_follower(config: Config, options: KeepOptions, *, replaces: bool) -> KeepingFollower:
    """Return the driver of a script whose last steps are kept.

    Raises:
        UserError: The settings select something else than statistics of all steps.
    """
    from probe_pytorch.keeping.keeping_recorder import KeepingFollower, KeepingRecorder

    config = keep_config(config)
    return KeepingFollower(KeepingRecorder(config, options, finds_models=True, replaces=replaces))


def report_kept(follower: Follower) -> bool:
    """Print how many events there were; return False if steps of an event could not be written."""
    from probe_pytorch.keeping.keeping_recorder import KeepingFollower

    assert isinstance(follower, KeepingFollower)
    recorder = follower.keeping
    keeper = recorder.keeper
    with suppress(OSError):  # the disk of the terminal's log may be full
        if keeper.events_left_out:
            console.note(f"probe: {counted(keeper.events_left_out, 'further event')} not written (--events).")
        if not keeper.events:
            console.note(
                f"probe: {counted(keeper.step_count, 'step')} observed without an event; nothing was written."
            )
        if not follower.has_stepped:
            console.warn("no optimizer of torch stepped, so no step was judged. Call a watch in the script.")
    return bool(recorder.is_complete)
