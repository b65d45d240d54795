"""``probe run_ut`` and ``probe multi_run_ut``: every recorded API alone, against a reference."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from probe_core.cli import console
from probe_core.cli.compare import time_stamp
from probe_core.cli.main import DEFECT, FINISHED, FOUND, ISSUES, LOST, MISTAKE
from probe_core.errors import UserError, printable
from probe_core.plugins.manager import Manager
from probe_precheck.cli import words
from probe_precheck.cli.releases import ReleaseChoice
from probe_precheck.settings import LANGUAGES, RELEASES, SEED, TIMEOUT

CPU = "cpu"
PER_DEVICE = 8
DEFAULT_PROCESSES = 8
MOST_PROCESSES = 64


class ManyValues(click.Command):
    """A command whose ``-d`` takes several values, as in ``-d 0 1 2 3``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give each value of ``-d`` an option of its own."""
        return super().parse_args(ctx, spread_values(args, ("-d", "--device")))


def spread_values(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """``-d 0 1`` as ``-d 0 -d 1``; what follows is a value while it is an index or ``cpu``."""
    found: list[str] = []
    inside = False
    for argument in arguments:
        if argument in options:
            inside = True
            found.append(argument)
        elif inside and (argument.isdecimal() or argument.lower() == CPU):
            if found[-1] not in options:
                found.append(options[0])
            found.append(argument)
        else:
            inside = False
            found.append(argument)
    return found


@dataclass(frozen=True, slots=True)
class _Option:
    """An option of both commands."""

    names: tuple[str, ...]
    settings: dict[str, Any]


_PATH = click.Path(path_type=Path)
_OPTIONS = (
    _Option(("-api_info", "--api_info_file", "dump"), {
        "type": _PATH, "required": True, "help": "The dump.json of a run (L1 or mix), or its directory."}),
    _Option(("-o", "--out_path", "output"), {
        "type": _PATH, "default": "./", "show_default": True, "help": "Directory of the result."}),
    _Option(("-d", "--device", "devices"), {
        "multiple": True, "metavar": "cpu | N…",
        "help": "cpu, or indices of accelerators.  [default: 0; cpu where there is none]"}),
    _Option(("-save_error_data", "--save_error_data"), {
        "is_flag": True, "help": "Save the data of calls that do not pass, each with a script."}),
    _Option(("-j", "--jit_compile"), {
        "is_flag": True, "help": "Compile operators just in time, on an NPU of PyTorch."}),
    _Option(("-csv_path", "--result_csv_path", "resume"), {
        "type": _PATH, "help": "Go on with the run that wrote this accuracy_checking_result csv."}),
    _Option(("-f", "--filter_api", "distinct"), {
        "is_flag": True, "help": "Run calls with equal arguments once."}),
    _Option(("-config", "--config_path", "config"), {
        "type": _PATH, "help": "config.json with a section run_ut, or config.yaml."}),
    _Option(("--framework",), {"help": "Framework of the run; found out when left out."}),
    _Option(("--only",), {
        "multiple": True, "metavar": "NAME", "help": "Run this call, or the calls of this API, alone."}),
    _Option(("--timeout",), {
        "type": click.FloatRange(min=0, min_open=True), "default": TIMEOUT, "show_default": True,
        "help": "Seconds that one call may take."}),
    _Option(("--standard", "release"), {
        "type": ReleaseChoice(), "default": RELEASES[0], "show_default": True,
        "help": "Whose thresholds: those of the guide of 1.0.4, or of 8.3."}),
    _Option(("--assign", "standards"), {
        "type": _PATH, "help": "A yaml file that maps standards to the APIs that they judge."}),
    _Option(("--seed",), {
        "type": int, "default": SEED, "show_default": True, "help": "What random inputs are made from."}),
    _Option(("--lang", "language"), {
        "type": click.Choice(LANGUAGES), "default": LANGUAGES[0], "show_default": True,
        "help": "Language of the headers and messages in the csv files."}),
    _Option(("--fail-on", "fail_on"), {
        "type": click.Choice(["warning", "error"]), "help": "Exit with 1 where an API comes to this."}),
)  # fmt: skip


def _options(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        function = click.option(*option.names, **option.settings)(function)
    return function


@click.command(cls=ManyValues)
@_options
@click.pass_context
def run_ut(ctx: click.Context, /, **given: Any) -> int:
    """Run every recorded API alone and hold it against a high-precision reference.

    \b
    probe run_ut --framework pytorch -api_info ./dump.json -o ./checker_result
    probe run_ut -api_info ./dump.json -d cpu -save_error_data --only Functional.conv2d.0

    Writes accuracy_checking_result and accuracy_checking_details; the details of two machines are judged
    by probe api_precision_compare.
    """
    return _check(ctx, 1, **given)


@click.command(cls=ManyValues)
@_options
@click.option(
    "-n",
    "--num_splits",
    "workers",
    type=click.IntRange(1, MOST_PROCESSES),
    default=DEFAULT_PROCESSES,
    show_default=True,
    help=f"Processes, at most {PER_DEVICE} a device.",
)
@click.pass_context
def multi_run_ut(ctx: click.Context, /, workers: int, **given: Any) -> int:
    """Run every recorded API alone, in several processes at a time.

    \b
    probe multi_run_ut --framework pytorch -api_info ./dump.json -n 32 -d 0 1 2 3

    A call that crashes or hangs takes its process with it and nothing else; its row says so, and the exit
    code is 3.
    """
    return _check(ctx, workers, **given)


def _check(ctx: click.Context, workers: int, **given: Any) -> int:
    from probe_precheck.run import CheckInterrupted, CheckPlan, check_run
    from probe_precheck.settings import read_settings

    if math.isnan(given["timeout"]):
        raise UserError('"nan" is no time for --timeout.', "Give seconds, such as 600.")
    dump = _dump_file(given.pop("dump"))
    config, fail_on = given.pop("config"), given.pop("fail_on")
    given["devices"] = devices = _devices(given["devices"])
    most = PER_DEVICE * max(1, len(devices))
    if workers > most:
        console.warn(f"{workers} processes are more than {PER_DEVICE} a device; {most} are used.")
        workers = most
    given["framework"] = given["framework"] or ctx.meta.get("probe.framework")
    plan = CheckPlan(
        dump=dump,
        time_stamp=time_stamp(),
        workers=workers,
        settings=read_settings(config),
        **given,
    )
    try:
        with console.progress():
            checked = check_run(plan, ctx.find_object(Manager) or Manager())
    except CheckInterrupted as stop:
        console.note(f"To go on, add: -csv_path {shlex.quote(str(stop.result))}")
        raise
    words.checked(checked)
    if checked.is_broken:
        console.error(
            f"No call was run, for probe or its installation is at fault: {printable(checked.internal)}",
            f"Install probe and its plugins again; if that does not help, report it at {ISSUES}.",
        )
        return DEFECT
    if checked.lost:
        return LOST
    if fail_on and not words.is_judged(checked):
        console.error("--fail-on cannot be judged: no call was checked.", "Above is why calls were skipped.")
        return MISTAKE
    return FOUND if fail_on and words.reaches(checked, fail_on) else FINISHED


def _dump_file(path: Path) -> Path:
    """The ``dump.json`` that a path means: itself, or the one in or below a directory."""
    if not path.is_dir():
        if not path.exists():
            raise UserError(f'There is no "{path}".', "Give the dump.json of a run.")
        return path
    if (path / "dump.json").is_file():
        return path / "dump.json"
    found = sorted(path.glob("**/dump.json"))
    if len(found) == 1:
        return found[0]
    raise UserError(
        f"{path} holds {'several runs' if found else 'no dump.json'}.",
        "Give one of these:" if found else "Give the dump.json of a run.",
        [str(one) for one in found[:10]],
    )


def _devices(given: Sequence[str]) -> tuple[str, ...]:
    found = tuple(device.lower() for device in given)
    for device in found:
        if device != CPU and not device.isdecimal():
            raise UserError(f'"{device}" is no device.', "Give cpu, or indices such as -d 0 1.")
    if len(set(found)) < len(found):
        raise UserError("A device is named twice.", "Name each once, such as -d 0 1 2 3.")
    if CPU in found and len(found) > 1:
        raise UserError("The CPU and accelerators exclude each other.", "Give -d cpu, or indices.")
    return found
