"""The command ``probe run``: record an unchanged training script."""

from __future__ import annotations

import builtins
import importlib.util
import runpy
import sys
import traceback
import types
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from probe_recording.api import Config
from probe_recording.config import LEVELS, TASKS, load_config, parse_steps
from probe_recording.destination import create_destination, replace_destination
from probe_recording.diff_check.checks import compare_with_golden
from probe_recording.diff_check.golden_run import read_golden_run
from probe_recording.earlier_run import settle_earlier_run
from probe_recording.loss import format_steps
from probe_recording.sites import STAND_IN

from probe_core import console
from probe_core.errors import UserError, format_count
from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINISHED, EXIT_INTERRUPTED
from probe_core.terminal.spelling import Command, option
from probe_pytorch.keeping.run_options import (
    DEFAULT_OUTPUT,
    create_follower,
    keep_options,
    refuse_mindspore,
    refuse_with_keeping,
    report_kept,
)
from probe_pytorch.run_status import StatusFile

if TYPE_CHECKING:
    from probe_pytorch.recorder import TorchRecorder

DEFAULT_STEPS = "0-2"
FLOAT64_HINT = (
    "The script ran in float64 (--double), which some kernels do not accept. If the error is about a dtype, "
    "choose another implementation in the script, such as attention without a fused kernel."
)


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
def run(
    dump_path: str | None,
    replace: bool,
    config: str | None,
    task: str | None,
    level: str | None,
    step: str | None,
    seed: int | None,
    double: bool,
    against: Path | None,
    keep: int | None,
    send_to: str | None,
    tls: str | None,
    insecure: bool,
    send_memory: str | None,
    keep_last: int | None,
    keep_memory: str | None,
    signal: str | None,
    events: int | None,
    rerun: bool,
    status: Path | None,
    module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> int:
    """Record SCRIPT, a training script that needs no change.

    A step ends when the script's first optimizer has stepped. The script runs as with python, with
    its ARGUMENTS, and probe exits with its exit code; with 3 if that is 0 and a part of the recording
    could not be written or sent.
    """
    keeping = keep_options(keep_last, keep_memory, signal, events, rerun=rerun)
    if keeping is not None:
        refuse_with_keeping(step, send_to, against)
        level, step = level or (None if config else "L0"), step or "all"
        dump_path = dump_path or (None if config else DEFAULT_OUTPUT)
    if send_to is not None:
        task, level = task or "tensor", level or (None if config else "L1")
    if against is not None:
        level, step = _take_from_golden(against, config, level, step)
    settings = _create_config(dump_path, config, task, level, step)
    settings = settings.with_run_options(seed, is_double=double)
    if against is not None:
        settings = compare_with_golden(settings, against, keep)
    elif keep is not None:
        raise UserError("--keep belongs to --against.", "Give --against GOLDEN, the run to compare with.")
    if send_to is not None:
        settings = replace_destination(settings, create_destination(send_to, tls, insecure, send_memory), "--send-to")
    elif tls or insecure or send_memory:
        raise UserError("--tls, --insecure and --send-memory belong to --send-to.", "Give --send-to HOST:PORT.")
    if not module and not Path(script).is_file():
        raise UserError(
            f'There is no script "{script}".',
            "Give the path of a Python file, or -m and the name of a module.",
        )
    if not module:
        try:
            Path(script).open("rb").close()
        except OSError as error:
            raise UserError(
                f'The script "{script}" cannot be read: {error.strerror or error}.',
                "Change its permissions, or give another script.",
            ) from None
    if module and not _has_module(script):
        raise UserError(
            f'There is no module "{script}".',
            "Give a name that python -m accepts, from this directory or installed.",
        )
    if keeping is not None:
        refuse_mindspore(script, is_module=module)
    try:
        from probe_pytorch.follower import Follower
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise UserError("Recording needs torch, which is not installed.", "Install it: pip install torch") from None
    if settings.online is None and keeping is None:
        confirm = _confirm_replacement if sys.stdin.isatty() and sys.stderr.isatty() else None
        settle_earlier_run(settings.dump_path, replace=replace, confirm=confirm, warn=console.warn)
    _note_misplaced_options(arguments)
    follower = Follower(settings) if keeping is None else create_follower(settings, keeping, replaces=replace)
    if seed is not None:
        from probe_pytorch.seeds import seed_all

        seed_all(seed, mode=True)
    if double:
        from probe_pytorch.double import run_in_double_precision
    status_file = StatusFile(status)
    try:
        follower.begin()
        status_file.begin()
        with run_in_double_precision() if double else nullcontext():
            code, ended_with = _run_script(script, arguments, module)
        follower.note_end(ended_with)
    finally:
        try:
            follower.end()
        except KeyboardInterrupt:  # it may arrive just before end() defers interrupts
            follower.end()
            raise
    if double and ended_with not in ("", "SystemExit", "KeyboardInterrupt"):
        console.note(FLOAT64_HINT)
    recorder = follower.recorder
    if keeping is not None:
        is_whole = report_kept(follower)
    else:
        with suppress(OSError):  # the disk of the terminal's log may be full, too
            is_default = step is None and config is None
            _report(settings, recorder, follower.has_stepped, is_default, ended_with, hints=status is None)
        recorder.report_comparison()
        is_whole = recorder.lost is None and (recorder.sender is None or recorder.sender.is_complete)
    status_file.end(code, ended_with, tuple(recorder.complete_steps), is_complete=is_whole)
    return code or (EXIT_FINISHED if is_whole else EXIT_DATA_LOST)


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


def _has_module(name: str) -> bool:
    sys.path.insert(0, "")
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path.remove("")


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


def _run_script(script: str, arguments: tuple[str, ...], module: bool) -> tuple[int, str]:
    """Run the script; return its exit code, and the name of the exception that ended it, empty for none.

    An exception of the script is printed as python prints it, without the recorder's frames.
    """
    is_path_safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)  # no entry for the launcher
    arguments_before, launcher_path = sys.argv, sys.path[: 0 if is_path_safe else 1]
    sys.argv = [script, *arguments]
    sys.path[: len(launcher_path)] = ["" if module else str(Path(script).resolve().parent)]
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            _run_file(script)
        return 0, ""
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0, "SystemExit" if stop.code else ""
        console.note(str(stop.code), lines=True)
        return 1, "SystemExit"
    except KeyboardInterrupt:
        console.note("Interrupted; the steps recorded so far are kept.")
        return EXIT_INTERRUPTED, "KeyboardInterrupt"
    except UserError:
        raise  # a mistake in the script's use of probe, shown as one sentence and the remedy
    except Exception as error:
        _show_error(error)
        return 1, type(error).__name__
    finally:
        sys.argv, sys.path[:1] = arguments_before, launcher_path


def _run_file(script: str) -> None:
    """Run a file as ``__main__``, as python does: ``__file__`` is absolute, ``sys.argv[0]`` unchanged."""
    path = str(Path(script).absolute())
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), main.__dict__)
    finally:
        sys.modules["__main__"] = before


def _show_error(error: Exception) -> None:
    trace = error.__traceback__
    hidden_prefixes = (str(Path(__file__).parent), "<frozen runpy>", runpy.__file__)
    shown = traceback.TracebackException(type(error), error, trace)
    part: traceback.TracebackException | None = shown
    while part is not None:
        frames = [f for f in part.stack if not f.filename.startswith(hidden_prefixes) and f.name != STAND_IN]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    console.note("".join(shown.format()).rstrip(), lines=True)


def _report(
    config: Config, recorder: TorchRecorder, stepped: bool, default: bool, ended_with: str, *, hints: bool
) -> None:
    """Print which steps were recorded, what was lost, and the command that compares them.

    Args:
        config: The settings of the recording.
        recorder: The recorder, which has finished.
        stepped: True if an optimizer has stepped.
        default: True if the steps were not chosen, but are those that are recorded by default.
        ended_with: The name of the exception that ended the script; empty for none.
        hints: True to print what was recorded and what to do next.
    """
    if config.online is not None:
        if recorder.sender is None:
            console.warn("nothing was sent: the script reached none of the selected steps.")
        elif not stepped and not ended_with:
            console.warn("no optimizer of torch stepped, so everything the script did is in step 0.")
        if default:
            console.note(f"Steps {DEFAULT_STEPS} are the default; others with --step, such as --step all.")
        return
    lost = recorder.lost
    steps = recorder.complete_steps
    if lost is not None:
        console.error(
            f"The recording is incomplete: it stopped in step {lost.step}. {lost.failure.what}",
            f"{lost.remains} {lost.failure.fix}",
        )
        if not steps:
            return
    if not steps and ended_with:
        console.warn(f"nothing was recorded: {ended_with} ended the script before a selected step had a recorded call.")
        return
    for sentence in recorder.missing_records():
        console.warn(sentence)
    if not steps:
        console.note("Check --step, --level and --config, and that SCRIPT is the script that trains.")
    if not steps or not hints:
        return
    count = sum(recorder.record_counts[step] for step in steps)
    path = config.shown_path
    console.note(
        f"probe recorded {format_steps(steps)} ({format_count(count, 'record')} of level {config.level}, "
        f"task {config.task}) into {path}"
    )
    if default and max(config.steps) in steps:
        console.note(f"Steps {DEFAULT_STEPS} are the default; others with --step, such as --step 0,5-7.")
    if not stepped and not ended_with:
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
