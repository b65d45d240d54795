"""``probe run-overflow-check``: recorded calls run again, to distinguish normal overflows from those of a device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from probe_core import console
from probe_core.errors import UserError, format_count, make_printable
from probe_core.files.atomic import make_directory, write_text
from probe_core.model.plan import get_time_stamp
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED, EXIT_USER_ERROR
from probe_core.terminal.spelling import Command, option
from probe_precheck.cli.run_ut import CPU, find_dump_file
from probe_precheck.command_options import framework_option, only_option, seed_option, timeout_option
from probe_precheck.overflow import Overflow, OverflowPlan, OverflowResult, check_overflows

_PATH = click.Path(path_type=Path)
VERSION = 1
"""Version of the layout of the result file."""
MAX_SHOWN_REASONS = 5
"""Maximum number of printed reasons for skipped calls."""


@click.command(cls=Command)
@option("-i", "--input", "dump", also=["-api_info", "--api_info_file"], type=_PATH, required=True,
    help="The dump.json of a run (L1 or mix), or its directory.")  # fmt: skip
@option("-o", "--output", type=_PATH, default="./", show_default=True,
    help="Directory of the result file; created if absent.")  # fmt: skip
@option("-d", "--device", default="", metavar="cpu | N",
    help="The device: cpu, or the index of an accelerator.  [default: 0; cpu if there is none]")  # fmt: skip
@option("-j", "--jit-compile", type=click.BOOL, is_flag=False, flag_value="true", default="false",
    metavar="BOOLEAN", help="Compile operators just in time: PyTorch on NPUs.")  # fmt: skip
@framework_option
@only_option
@timeout_option
@seed_option
@option("--fail-on", type=click.Choice(["abnormal"]), help="Exit with 1 if an overflow is abnormal.")
@click.pass_context
def run_overflow_check(
    ctx: click.Context, /, dump: Path, output: Path, device: str, jit_compile: bool, framework: str | None,
    only: tuple[str, ...], timeout: float, seed: int, fail_on: str | None,
) -> int:  # fmt: skip
    """Run recorded calls on the device and as the reference, and report which overflows are normal.

    \b
    probe run-overflow-check -i dump.json -d cpu
    """
    device = device.lower()
    if device not in ("", CPU) and not device.isdecimal():
        raise UserError(f'"{make_printable(device)}" is not a device.', "Give cpu, or an index such as -d 0.")
    framework = framework or ctx.meta.get("probe.framework")
    plan = OverflowPlan(find_dump_file(dump), framework, device, jit_compile, only, timeout, seed)
    with console.show_progress():
        results = check_overflows(plan, ctx.find_object(Manager) or Manager())

    _show(results, _write(results, output))
    if all(result.overflow is Overflow.SKIPPED for result in results):
        console.warn("Nothing was checked: all calls were skipped.")
        return EXIT_USER_ERROR if fail_on else EXIT_FINISHED
    has_abnormal = any(result.overflow is Overflow.ABNORMAL for result in results)
    return EXIT_FINDINGS if fail_on and has_abnormal else EXIT_FINISHED


def _write(results: Sequence[OverflowResult], output: Path) -> Path:
    """Write the result file, and return its path."""
    make_directory(output)
    path = output / f"overflow_check_{get_time_stamp()}.json"
    calls = [{**result._asdict(), "overflow": result.overflow.value} for result in results]
    write_text(path, json.dumps({"version": VERSION, "calls": calls}, indent=2) + "\n")
    return path


def _show(results: Sequence[OverflowResult], path: Path) -> None:
    """Print the counts, the overflows, and the reasons for skipped calls."""
    counts = Counter(result.overflow for result in results)
    texts = ", ".join(f"{counts[kind]:,} {kind.value}" for kind in Overflow)
    console.show(f"{format_count(len(results), 'call')}: {texts}")
    for kind in (Overflow.ABNORMAL, Overflow.NORMAL, Overflow.NOT_REPRODUCED):
        for result in results:
            if result.overflow is kind:
                _show_call(result)
    reasons = Counter(result.reason for result in results if result.overflow is Overflow.SKIPPED)
    for reason, count in reasons.most_common(MAX_SHOWN_REASONS):
        console.show(f"  skipped: {count:,} × {make_printable(reason, 160)}")
    console.show(f"  wrote {path}")


def _show_call(result: OverflowResult) -> None:
    side = ""
    if result.overflow is Overflow.ABNORMAL:
        side = f" (on the {'device' if result.device else 'reference'} only)"
    color = "red" if result.overflow is Overflow.ABNORMAL else None
    console.show(f"  {console.style(result.overflow.value, fg=color)}: {make_printable(result.name)}{side}")
