"""``probe run-ut`` and ``probe multi-run-ut``: the pre-check of every recorded API alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from probe_core import console
from probe_core.errors import UserError, make_printable
from probe_core.model.plan import get_time_stamp
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import OptionSpec
from probe_core.terminal import plugin_options
from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_DEFECT, EXIT_FINDINGS, EXIT_FINISHED, EXIT_USER_ERROR
from probe_core.terminal.spelling import Command, option
from probe_precheck.cli import words
from probe_precheck.command_options import ReleaseChoice, framework_option, only_option, seed_option, timeout_option
from probe_precheck.releases import RELEASES
from probe_precheck.settings import LANGUAGES

if TYPE_CHECKING:
    from probe_precheck.protocols import Receiver
    from probe_precheck.run import CheckSummary
    from probe_precheck.settings import Settings

CPU = "cpu"
MAX_PROCESSES_PER_DEVICE = 8
DEFAULT_PROCESSES = 8
MAX_PROCESSES = 64


class MultiValueCommand(Command):
    """A command whose ``-d`` takes several values, as in ``-d 0 1 2 3``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Convert ``-d`` with several values to one option per value."""
        return super().parse_args(ctx, spread_values(args, ("-d", "--device")))


def spread_values(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return ``-d 0 1`` as ``-d 0 -d 1``: indices and ``cpu`` after one of the options are its values."""
    result: list[str] = []
    is_value = False
    for argument in arguments:
        if argument in options:
            is_value = True
            result.append(argument)
        elif is_value and (argument.isdecimal() or argument.lower() == CPU):
            if result[-1] not in options:
                result.append(options[0])
            result.append(argument)
        else:
            is_value = False
            result.append(argument)
    return result


_PATH = click.Path(path_type=Path)
_OPTIONS = (
    option("-i", "--input", "dump", also=["-api_info", "--api_info_file"], type=_PATH,
        help="The dump.json of a run (L1 or mix), or its directory."),
    option("-o", "--output", also=["--out_path"], type=_PATH, default="./", show_default=True,
        help="Directory of the result files; created if absent."),
    option("-d", "--device", "devices", multiple=True, metavar="cpu | N…",
        help="The device: cpu, or the indices of accelerators.  [default: 0; cpu if there is none]"),
    option("--save-error-data", also=["-save_error_data"], is_flag=True,
        help="Save the data of calls that do not pass, each with a script."),
    option("-j", "--jit-compile", is_flag=True, help="Compile operators just in time: PyTorch on NPUs."),
    option("--result-csv-path", "resume", also=["-csv_path"], type=_PATH,
        help="Resume the check that wrote this accuracy_checking_result csv, in the language of that file."),
    option("-f", "--filter-api", "distinct", is_flag=True, help="Run calls with equal arguments once."),
    option("--config", also=["-config", "--config_path"], type=_PATH,
        help="config.json with a section run_ut, or config.yaml."),
    framework_option,
    only_option,
    timeout_option,
    option("--standard", "release", type=ReleaseChoice(), default=RELEASES[0], show_default=True,
        help="Thresholds of the msprobe 1.0.4 guide, or of 8.3."),
    option("--assign", "standards", type=_PATH, help="YAML file that maps standards to the APIs they judge."),
    seed_option,
    option("--lang", "language", type=click.Choice(LANGUAGES), default=LANGUAGES[0], show_default=True,
        help="Language of the csv files: Chinese or English."),
    option("--fail-on", type=click.Choice(["warning", "error"]),
        help="Exit with 1 if the status of an API is this or worse."),
)  # fmt: skip
"""The options of both commands."""


def _add_options(function: Callable[..., int]) -> Callable[..., int]:
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


@click.command(cls=MultiValueCommand)
@_add_options
@click.pass_context
def run_ut(ctx: click.Context, /, **options: Any) -> int:
    """Run every recorded API alone and compare it with a high-precision reference.

    \b
    probe run-ut -i dump.json -o checker_result
    probe run-ut -i dump.json -d cpu --save-error-data --only Functional.conv2d.0

    Writes accuracy_checking_result and accuracy_checking_details. Judge the details of two machines
    with probe api-precision-compare.
    """
    return _check(ctx, 1, **options)


@click.command(cls=MultiValueCommand)
@_add_options
@option("-n", "--num-splits", "workers", type=click.IntRange(1, MAX_PROCESSES), metavar="N",
    default=DEFAULT_PROCESSES, show_default=True,
    help=f"Number of processes, at most {MAX_PROCESSES_PER_DEVICE} per device.")  # fmt: skip
@click.pass_context
def multi_run_ut(ctx: click.Context, /, workers: int, **options: Any) -> int:
    """Run every recorded API alone in several processes, and compare it as run-ut does.

    \b
    probe multi-run-ut -i dump.json -o checker_result -n 32 -d 0 1 2 3

    A call that crashes or hangs ends only its process. Its row states this, and the exit code is 3.
    """
    return _check(ctx, workers, **options)


def _check(ctx: click.Context, workers: int, **options: Any) -> int:
    from probe_precheck.run import CheckInterrupted, CheckPlan, check_run
    from probe_precheck.settings import read_settings

    options["devices"] = devices = _parse_devices(options["devices"])
    options["framework"] = options["framework"] or ctx.meta.get("probe.framework")
    settings = read_settings(options["config"])
    receiver, values = _find_receiver(ctx, settings)
    if receiver is not None:
        options["workers"] = workers
        if settings.dump_path and ctx.get_parameter_source("output") is ParameterSource.DEFAULT:
            options["output"] = settings.dump_path
        return receiver.receive(ctx.find_object(Manager) or Manager(), options, settings, options["config"], values)
    if options["dump"] is None:
        raise click.MissingParameter(
            ctx=ctx, param=next(parameter for parameter in ctx.command.params if parameter.name == "dump")
        )
    dump = find_dump_file(options.pop("dump"))
    fail_on = options.pop("fail_on")
    del options["config"]
    plan = CheckPlan(
        dump=dump,
        time_stamp=get_time_stamp(),
        workers=_limit_workers(workers, len(devices)),
        settings=settings,
        **options,
    )
    try:
        with console.show_progress():
            checked = check_run(plan, ctx.find_object(Manager) or Manager())
    except CheckInterrupted as stop:
        console.note(f"To resume, add: --result-csv-path {shlex.quote(str(stop.result))}")
        raise
    return _report(ctx, checked, fail_on)


def _limit_workers(workers: int, device_count: int) -> int:
    limit = MAX_PROCESSES_PER_DEVICE * max(1, device_count)
    if workers > limit:
        console.warn(f"{workers} processes are more than {MAX_PROCESSES_PER_DEVICE} per device; {limit} are used.")
    return min(workers, limit)


def _report(ctx: click.Context, checked: CheckSummary, fail_on: str | None) -> int:
    """Print the summary of a finished check, and return the exit code."""
    words.print_summary(checked)
    if checked.is_broken:
        console.error(
            f"No call was run, because probe or its installation is broken: {make_printable(checked.internal)}",
            "Reinstall probe and its plugins; if that does not help, report it with this message.",
        )
        return EXIT_DEFECT
    _extend(ctx, checked)
    if checked.lost:
        return EXIT_DATA_LOST
    if fail_on and not words.is_judged(checked):
        console.error("--fail-on cannot be judged: no call was checked.", "The lines above state the reason.")
        return EXIT_USER_ERROR
    return EXIT_FINDINGS if fail_on and words.reaches(checked, fail_on) else EXIT_FINISHED


def _find_receiver(ctx: click.Context, settings: Settings) -> tuple[Receiver | None, Mapping[str, Any]]:
    """Return the plugin that receives calls of trainings, and its options; None if it is not requested."""
    from probe_precheck.protocols import Receiver

    manager = ctx.find_object(Manager) or Manager()
    actions = plugin_options.collect_option_actions(ctx, manager)
    receivers = [(action, values) for action, values in actions if isinstance(action, Receiver)]
    if not receivers and settings.online is not None:
        receivers = [(manager.find("options", "online", OptionSpec).action({}), {})]
    if receivers and len(actions) > sum(isinstance(action, Receiver) for action, _ in actions):
        what = "Options such as --page have no effect on calls that a training sends."
        raise UserError(what, "Omit them.")
    return receivers[0] if receivers else (None, {})


def _extend(ctx: click.Context, checked: CheckSummary) -> None:
    """Call the functions of the options that plugins add."""
    from probe_precheck.model import Result, ResultPaths, Status

    failed = {result.name: result for result in checked.failed}

    def repeat(name: str) -> str:
        return words.build_repeat_command(failed.get(name) or Result(name, Status.PASS, None), checked.plan)

    manager = ctx.find_object(Manager) or Manager()
    for action, values in plugin_options.collect_option_actions(ctx, manager):
        action(manager, ResultPaths(checked.files.result, again=repeat), values)


def find_dump_file(path: Path) -> Path:
    """Return the ``dump.json`` that a path names: itself, or the only one in or below a directory."""
    if not path.is_dir():
        if not path.exists():
            raise UserError(f'"{path}" not found.', "Give the dump.json of a run.")
        return path
    if (path / "dump.json").is_file():
        return path / "dump.json"
    paths = sorted(path.glob("**/dump.json"))
    if len(paths) == 1:
        return paths[0]
    raise UserError(
        f"{path} contains {'several runs' if paths else 'no dump.json'}.",
        "Give one of these:" if paths else "Give the dump.json of a run.",
        [str(candidate) for candidate in paths[:10]],
    )


def _parse_devices(texts: Sequence[str]) -> tuple[str, ...]:
    devices = tuple(device.lower() for device in texts)
    for device in devices:
        if device != CPU and not device.isdecimal():
            raise UserError(f'"{device}" is not a device.', "Give cpu, or indices such as -d 0 1.")
    if len(set(devices)) < len(devices):
        raise UserError("A device is named twice.", "Name each device once, such as -d 0 1 2 3.")
    if CPU in devices and len(devices) > 1:
        raise UserError("The CPU and accelerators exclude each other.", "Give -d cpu, or indices.")
    return devices
