"""``probe api-precision-compare``: the details of two machines, judged by the precision standards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from probe_reporters.api import claim_time_stamp

from probe_core import console
from probe_core.errors import UserError, format_count, make_printable
from probe_core.model.plan import get_time_stamp
from probe_core.plugins.manager import Manager
from probe_core.terminal import plugin_options
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED, EXIT_USER_ERROR
from probe_core.terminal.spelling import Command, option
from probe_precheck.command_options import ReleaseChoice
from probe_precheck.releases import RELEASES
from probe_precheck.settings import LANGUAGES

if TYPE_CHECKING:
    from probe_precheck.comparison import DetailsComparison
    from probe_precheck.model import Message

DETAILS_PATTERN = "accuracy_checking_details_*.csv"
MAX_SHOWN_ROWS = 5
FAILED_LEVELS = ("error", "warning")
JUDGED_LEVELS = (*FAILED_LEVELS, "pass")
SKIPPED = "SKIP"
_PATH = click.Path(path_type=Path)


class _ApiVerdict(NamedTuple):
    """The worse of the two statuses of an API, as a level, with the messages of both."""

    api: str
    level: str
    messages: tuple[Message, ...]


@click.command(cls=Command)
@option("--npu", also=["-npu", "--npu_csv_path"], type=_PATH,
    help="Details csv of the device under test.  [default: the only one in this directory]")  # fmt: skip
@option("--gpu", also=["-gpu", "--gpu_csv_path"], type=_PATH,
    help="Details csv of the trusted device.  [default: the only one in this directory]")  # fmt: skip
@option("-o", "--output", also=["--out_path"], type=_PATH, default="./", show_default=True,
    help="Directory of the result files; created if absent.")  # fmt: skip
@option("--standard", "release", type=ReleaseChoice(), default=RELEASES[0], show_default=True,
    help="Thresholds of the msprobe 1.0.4 guide, or of 8.3.")  # fmt: skip
@option("--assign", "standards", type=_PATH, help="YAML file that maps standards to the APIs they judge.")
@option("--lang", "language", type=click.Choice(LANGUAGES),
    help="Language of the csv files: Chinese or English.  [default: that of the NPU csv]")  # fmt: skip
@option("--framework", help="Framework of the runs; has no effect here.")
@option("--fail-on", type=click.Choice(["warning", "error"]),
    help="Exit with 1 if the status of an API is this or worse, or its error beyond rounding.")  # fmt: skip
@click.pass_context
def api_precision_compare(
    ctx: click.Context,
    npu: Path | None,
    gpu: Path | None,
    output: Path,
    release: str,
    standards: Path | None,
    language: str | None,
    framework: str | None,
    fail_on: str | None,
) -> int:
    """Judge the pre-check of one device by that of a trusted device.

    \b
    probe api-precision-compare --npu npu/accuracy_checking_details_20260101120000.csv
          --gpu gpu/accuracy_checking_details_20260101130000.csv -o out
    """
    from probe_precheck.assignment import Assignment
    from probe_precheck.comparison import compare_details, write_comparison
    from probe_precheck.model import ResultPaths
    from probe_precheck.translation import translate

    npu, gpu = npu or _find_details_file("--npu"), gpu or _find_details_file("--gpu")
    if npu.resolve() == gpu.resolve():
        raise UserError(f"Both sides are {npu}.", "Give the details csv of two devices with --npu and --gpu.")
    manager = ctx.find_object(Manager) or Manager()
    assignment = Assignment(manager, release, standards)
    comparison = compare_details(npu, gpu, assignment)
    _warn_of_missing_rows(comparison, gpu)
    with claim_time_stamp(output, get_time_stamp()) as claim:
        write_comparison(comparison, output, claim, language)
    verdicts = [*_judge_apis(comparison)]
    counts = Counter(verdict.level for verdict in verdicts)
    _print_counts(comparison, counts)
    failed = (verdict for verdict in verdicts if verdict.level in FAILED_LEVELS)
    for verdict in sorted(failed, key=lambda verdict: FAILED_LEVELS.index(verdict.level))[:MAX_SHOWN_ROWS]:
        name = console.style(make_printable(verdict.api), bold=True)
        message = translate(" ".join(message.text("en") for message in verdict.messages), "en")
        console.show(f"    {name}  {verdict.level}  {make_printable(message)}")
    console.show(f"  wrote {comparison.result}")
    console.show(f"  wrote {comparison.details}")
    for action, values in plugin_options.collect_option_actions(ctx, manager):
        action(manager, ResultPaths(comparison.result, npu, gpu), values)
    return _choose_exit_code(counts, fail_on)


def _warn_of_missing_rows(comparison: DetailsComparison, gpu: Path) -> None:
    for name in comparison.missing[:MAX_SHOWN_ROWS]:
        console.warn(f"{name} is not in {gpu.name}; skipped.")
    if len(comparison.missing) > MAX_SHOWN_ROWS:
        console.warn(f"{len(comparison.missing) - MAX_SHOWN_ROWS} more rows are not in {gpu.name}.")


def _judge_apis(comparison: DetailsComparison) -> Iterator[_ApiVerdict]:
    """Yield the worse of the two statuses of each API, in the order of the result."""
    for api, (forward, backward, messages) in comparison.apis.items():
        statuses = [status.value for status in (forward, backward) if status is not None]
        level = next((candidate for candidate in JUDGED_LEVELS if candidate in statuses), SKIPPED)
        yield _ApiVerdict(api, "error" if api in comparison.beyond else level, messages)


def _print_counts(comparison: DetailsComparison, counts: Counter[str]) -> None:
    """Print the numbers of APIs by their levels."""
    console.show(
        f"{format_count(len(comparison.apis), 'API')} judged by {format_count(len(comparison.rows), 'output')}"
    )
    error = "error"
    if comparison.beyond:
        error += f" ({len(comparison.beyond):,} by no rule of the tables, but off by more than rounding explains)"
    words = (
        ("error", error, "red"),
        ("warning", "warning", "yellow"),
        ("pass", "pass", "green"),
        (SKIPPED, SKIPPED, ""),
    )
    parts = [console.style(f"{counts[key]:,} {word}", fg=color if counts[key] else None) for key, word, color in words]
    console.show(f"  {', '.join(parts)}")


def _choose_exit_code(counts: Counter[str], fail_on: str | None) -> int:
    is_judged = any(counts[level] for level in JUDGED_LEVELS)
    if not is_judged:
        console.warn("No API was judged, because all are skipped.")
        if fail_on:
            console.error("--fail-on cannot be judged: no API was judged.", "The messages in the result say why.")
            return EXIT_USER_ERROR
    levels = {"error": ("error",), "warning": FAILED_LEVELS}.get(fail_on or "", ())
    return EXIT_FINDINGS if any(counts[level] for level in levels) else EXIT_FINISHED


def _find_details_file(option: str) -> Path:
    """Return the only details csv in the working directory (docs/standards.md#inputs)."""
    paths = sorted(Path().glob(DETAILS_PATTERN))
    if len(paths) != 1:
        what = "There is no" if not paths else "There are several"
        raise UserError(
            f"{what} {DETAILS_PATTERN} here.", f"Give the file with {option}.", [path.name for path in paths[:10]]
        )
    return paths[0]
