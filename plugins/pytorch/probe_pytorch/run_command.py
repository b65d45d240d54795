"""The command ``probe run``: record an unchanged training script."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from probe_recording.api import Config
from probe_recording.framework import (
    LEVELS,
    TASKS,
    compare_with_golden,
    create_destination,
    format_steps,
    load_config,
    parse_steps,
    read_golden_run,
    replace_destination,
    settle_earlier_run,
)

from probe_core import console
from probe_core.errors import UserError, format_count
from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINISHED
from probe_core.terminal.spelling import Command, option
from probe_pytorch.keeping.run_options import (
    DEFAULT_OUTPUT,
    create_follower,
    keep_options,
    refuse_mindspore,
    refuse_with_keeping,
    report_kept,
)
from probe_pytorch.script import Script, ScriptEnd

if TYPE_CHECKING:
    from probe_recording.keeping.options import KeepOptions

    from probe_pytorch.follower import Follower
    from probe_pytorch.recorder import TorchRecorder


import json
import os
from dataclasses import asdict

from probe_core.files.atomic import make_directory, write_text

DEFAULT_STEPS = "0-2"
FLOAT64_HINT = (
    "The script ran in float64 (--double), which some kernels do not accept. If the error is about a dtype, "
    "choose another implementation in the script, such as attention without a fused kernel."
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``probe run``, as the user gave them, with the script."""

    script: Script
    dump_path: str | None
    replace: bool
    config: str | None
    task: str | None
    level: str | None
    step: str | None
    seed: int | None
    double: bool
    against: Path | None
    keep: int | None
    send_to: str | None
    tls: str | None
    insecure: bool
    send_memory: str | None
    keep_last: int | None
    keep_memory: str | None
    signal: str | None
    events: int | None
    rerun: bool
    status: Path | None


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@option("-o", "--output", "dump_path", also=["--dump_path"],
    help="Directory of the run.  [default: ./probe-run]")  # fmt: skip
@option("--replace", is_flag=True, help="Replace an earlier recording in the directory of the run.")
@option("--config", silent=["-c"], type=click.Path(), help="A config.json; other options override it.")
@option("--task", type=click.Choice(TASKS), help="Kind of data to record.  [default: statistics]")
@option("--level", type=click.Choice([level for level in LEVELS if level != "debug"]),
    help="Modules (L0), APIs (L1), both (mix), aten operators (L2).  [default: mix]")  # fmt: skip
@option("--step", help=f"Steps to record, such as 0,5-7, or all.  [default: {DEFAULT_STEPS}]")
@option("--seed", type=int, help="Set all seeds to this, and use deterministic algorithms.")
@option("--double", is_flag=True, help="Run the script in float64, as the reference of other runs.")
@option("--against", type=click.Path(path_type=Path), metavar="GOLDEN", help="Compare each call with this recorded "
    "run while the script runs; only the first calls that differ keep their tensors.")  # fmt: skip
@option("--keep", type=int, metavar="K", help="Number of differing calls that keep their tensors.  [default: 3]")
@option("--send-to", metavar="HOST:PORT|DIR", help="Send each forward call to a receiver that checks it "
    "while the script runs, or to a directory that both machines share; no tensors are written.")  # fmt: skip
@option("--tls", type=click.Path(file_okay=False, exists=True), metavar="DIR",
    help="Directory with the receiver's server.crt, for --send-to.")  # fmt: skip
@option("--insecure", is_flag=True, help="Allow --send-to to another machine in plain text.")
@option("--send-memory", metavar="SIZE",
    help="Memory for calls that wait to be sent or judged.  [default: 1GiB]")  # fmt: skip
@option("--keep-last", type=int, metavar="K", help="Keep the last K steps in memory, and write them only "
    "at an event, such as a loss that is not finite or rises suddenly.")  # fmt: skip
@option("--keep-memory", metavar="SIZE", help="Memory for kept steps.  [default: 256MiB]")
@option("--signal", metavar="NAME", help="Write the kept steps at this signal, too, such as USR1.")
@option("--events", type=int, metavar="N", help="Number of events that are written.  [default: 10]")
@option("--rerun", is_flag=True, help="Run a failing step again; this needs watch.step in the script.")
@option("--status", type=click.Path(path_type=Path), metavar="DIR", help="Write to this directory, as JSON, how "
    "the script ended and whether the recording is complete; print no hints.")  # fmt: skip
@option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...], module: bool, **values: Any) -> int:
    """Record SCRIPT, a training script that needs no change.

    A step ends when the script's first optimizer has stepped. The script runs as with python, with
    its ARGUMENTS, and probe exits with its exit code; with 3 if that is 0 and a part of the recording
    could not be written or sent.
    """
    options = RunOptions(Script(script, arguments, module), **values)
    keeping = keep_options(options.keep_last, options.keep_memory, options.signal, options.events, rerun=options.rerun)
    if keeping is not None:
        options = _default_to_keeping(options)
    settings = create_settings(options)
    options.script.check()
    if keeping is not None:
        refuse_mindspore(script, is_module=module)
    follower = _create_follower(options, settings, keeping)
    status_file = StatusFile(options.status)  # its directory is relative to the one before the script runs
    end = _run_recorded(options, follower, status_file)
    if keeping is not None:
        is_complete = report_kept(follower)
    else:
        is_complete = _report(options, settings, follower, end)
    steps = tuple(follower.recorder.complete_steps)
    status_file.end(end.exit_code, end.exception, steps, is_complete=is_complete)
    return end.exit_code or (EXIT_FINISHED if is_complete else EXIT_DATA_LOST)


def _default_to_keeping(options: RunOptions) -> RunOptions:
    """Return the options with the defaults of ``--keep-last``.

    Raises:
        UserError: An option contradicts ``--keep-last``.
    """
    refuse_with_keeping(options.step, options.send_to, options.against)
    return replace(
        options,
        level=options.level or (None if options.config else "L0"),
        step=options.step or "all",
        dump_path=options.dump_path or (None if options.config else DEFAULT_OUTPUT),
    )


def create_settings(options: RunOptions) -> Config:
    """Return the settings of the recording.

    Raises:
        UserError: An option is not valid, or two options contradict each other.
    """
    task, level, step = options.task, options.level, options.step
    if options.send_to is not None:
        task, level = task or "tensor", level or (None if options.config else "L1")
    if options.against is not None:
        level, step = _take_from_golden(options.against, options.config, level, step)
    settings = _create_config(options.dump_path, options.config, task, level, step)
    settings = settings.with_run_options(options.seed, is_double=options.double)
    if options.against is not None:
        settings = compare_with_golden(settings, options.against, options.keep)
    elif options.keep is not None:
        raise UserError("--keep belongs to --against.", "Give --against GOLDEN, the run to compare with.")
    if options.send_to is not None:
        destination = create_destination(options.send_to, options.tls, options.insecure, options.send_memory)
        settings = replace_destination(settings, destination, "--send-to")
    elif options.tls or options.insecure or options.send_memory:
        raise UserError("--tls, --insecure and --send-memory belong to --send-to.", "Give --send-to HOST:PORT.")
    return settings


def _create_follower(options: RunOptions, settings: Config, keeping: KeepOptions | None) -> Follower:
    """Return the driver of the recorder, after an earlier recording is settled.

    Raises:
        UserError: torch is not installed, or an earlier recording may not be replaced.
    """
    try:
        from probe_pytorch.follower import Follower
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise UserError("Recording needs torch, which is not installed.", "Install it: pip install torch") from None
    if settings.online is None and keeping is None:
        confirm = _confirm_replacement if sys.stdin.isatty() and sys.stderr.isatty() else None
        settle_earlier_run(settings.dump_path, replace=options.replace, confirm=confirm, warn=console.warn)
    _note_misplaced_options(options.script.arguments)
    return Follower(settings) if keeping is None else create_follower(settings, keeping, replaces=options.replace)


def _run_recorded(options: RunOptions, follower: Follower, status_file: StatusFile) -> ScriptEnd:
    """Run the script and record it."""
    if options.seed is not None:
        from probe_pytorch.seeds import seed_all

        seed_all(options.seed, mode=True)
    if options.double:
        from probe_pytorch.double import run_in_double_precision
    try:
        follower.begin()
        status_file.begin()
        with run_in_double_precision() if options.double else nullcontext():
            end = options.script.run()
        follower.note_end(end)
    finally:
        try:
            follower.end()
        except KeyboardInterrupt:  # it may arrive just before end() defers interrupts
            follower.end()
            raise
    if options.double and end.is_error:
        console.note(FLOAT64_HINT)
    return end


def _confirm_replacement(root: Path) -> bool:
    """Ask the user on the terminal whether the recording in ``root`` may be replaced."""
    return click.confirm(f'"{root}" holds an earlier recording. Replace it?', default=False, err=True)


def _note_misplaced_options(arguments: tuple[str, ...]) -> None:
    """Point out options of ``probe run`` after the script's name, which the script receives."""
    names = {name for parameter in run.params for name in parameter.opts if name.startswith("-")}
    misplaced = [name for name in dict.fromkeys(text.partition("=")[0] for text in arguments) if name in names]
    if misplaced:
        console.note(
            f"{', '.join(misplaced)} came after the script's name, so the script receives "
            f"{'it' if len(misplaced) == 1 else 'them'}. Options of probe run precede the script's name."
        )


def _take_from_golden(
    golden: Path, config: str | None, level: str | None, step: str | None
) -> tuple[str | None, str | None]:
    """Return the level and the steps to record, which are those of the golden unless the user chose others."""
    if config is not None:
        return level, step
    run = read_golden_run(golden)
    return level or run.level, step or ",".join(map(str, run.steps))


def _create_config(
    dump_path: str | None, config: str | None, task: str | None, level: str | None, step: str | None
) -> Config:
    fields: dict[str, Any] = {"task": task, "level": level, "dump_path": dump_path}
    if config is None:
        fields["level"] = level or "mix"
        fields["dump_path"] = dump_path or "probe-run"
        step = step or DEFAULT_STEPS
    if step is not None:
        fields["step"] = parse_steps(step)
    return load_config(config, **fields)


def _report(options: RunOptions, config: Config, follower: Follower, end: ScriptEnd) -> bool:
    """Print what was recorded or sent; return False if a part was lost."""
    recorder = follower.recorder
    is_default = (options.step, options.config, options.against) == (None, None, None)
    with suppress(OSError):  # the disk of the terminal's log may be full, too
        if config.online is not None:
            _report_sending(recorder, follower.has_stepped, is_default, end)
        elif _report_recording(recorder, end) and options.status is None:
            _print_hints(config, recorder, follower.has_stepped, is_default, end)
    recorder.report_comparison()
    return recorder.lost is None and (recorder.sender is None or recorder.sender.is_complete)


def _report_sending(recorder: TorchRecorder, has_stepped: bool, is_default: bool, end: ScriptEnd) -> None:
    """Warn if no calls were sent or no optimizer has stepped."""
    if recorder.sender is None:
        console.warn("nothing was sent: the script reached none of the selected steps.")
    elif not has_stepped and not end.exception:
        console.warn("no optimizer of torch stepped, so everything the script did is in step 0.")
    if is_default:
        console.note(f"Steps {DEFAULT_STEPS} are the default; others with --step, such as --step all.")


def _report_recording(recorder: TorchRecorder, end: ScriptEnd) -> bool:
    """Print what was lost or is missing; return False if no step was recorded."""
    lost, steps = recorder.lost, recorder.complete_steps
    if lost is not None:
        console.error(
            f"The recording is incomplete: it stopped in step {lost.step}. {lost.failure.what}",
            f"{lost.remains} {lost.failure.fix}",
        )
        if not steps:
            return False
    if not steps and end.exception:
        reason = f"{end.exception} ended the script before a selected step had a recorded call"
        console.warn(f"nothing was recorded: {reason}.")
        return False
    for sentence in recorder.missing_records():
        console.warn(sentence)
    if not steps:
        console.note("Check --step, --level and --config, and that SCRIPT is the script that trains.")
    return bool(steps)


def _print_hints(config: Config, recorder: TorchRecorder, has_stepped: bool, is_default: bool, end: ScriptEnd) -> None:
    """Print which steps were recorded, and the command that compares them.

    Args:
        config: The settings of the recording.
        recorder: The recorder, which has finished.
        has_stepped: True if an optimizer has stepped.
        is_default: True if the user did not choose the steps.
        end: How the script ended.
    """
    steps = recorder.complete_steps
    count = sum(recorder.record_counts[step] for step in steps)
    path = config.shown_path
    console.note(
        f"probe recorded {format_steps(steps)} ({format_count(count, 'record')} of level {config.level}, "
        f"task {config.task}) into {path}"
    )
    if is_default and max(config.steps) in steps:
        console.note(f"Steps {DEFAULT_STEPS} are the default; others with --step, such as --step 0,5-7.")
    if not has_stepped and not end.exception:
        console.warn(
            "no optimizer of torch stepped, so everything the script did is in step 0. To record each "
            "iteration as a step, call start(), stop() and step() of a PrecisionDebugger in the script."
        )
    if config.task not in ("statistics", "tensor") or config.diff_check is not None:
        return
    console.note(
        "Record the other run the same way with -o OTHER, where OTHER stands for a directory of your choice; "
        "then compare, the run under test first:"
    )
    console.note(f"  probe compare {path} OTHER -o out")


# -- the file that states how a recorded script ended (docs/recording.md#status) --------------------


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a script that is being recorded.

    Attributes:
        ended: False while the script runs; it stays False if the process ends in another way.
        exit_code: The exit code of the script.
        exception: The name of the exception that ended the script; empty for none.
        complete: True if nothing of the recording was lost.
        steps: The numbers of the steps that were recorded completely.
    """

    ended: bool = False
    exit_code: int = 0
    exception: str = ""
    complete: bool = False
    steps: tuple[int, ...] = ()


class StatusFile:
    """The status of this process as a file in a directory, which other ranks may share.

    Args:
        directory: The directory; None to write no file.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory.absolute() / f"status-{os.getpid()}.json"
        self._status = RunStatus()

    def begin(self) -> None:
        """Write that the script begins."""
        self._write()

    def end(self, exit_code: int, exception: str, steps: tuple[int, ...], *, is_complete: bool) -> None:
        """Write how the script ended."""
        self._status = replace(
            self._status, ended=True, exit_code=exit_code, exception=exception, complete=is_complete, steps=steps
        )
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            make_directory(self._path.parent)
            write_text(self._path, json.dumps(asdict(self._status)) + "\n")
