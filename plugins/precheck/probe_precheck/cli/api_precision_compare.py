"""``probe api-precision-compare``: the details of two machines, judged by the precision standards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from probe_reporters.api import claim_time_stamp

from probe_core import console
from probe_core.errors import UserError, format_count, make_printable
from probe_core.model.plan import get_time_stamp
from probe_core.plugins.manager import Manager
from probe_core.terminal import plugin_options
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED, EXIT_USER_ERROR
from probe_core.terminal.spelling import Command, option
from probe_precheck.cli.release_option import ReleaseChoice
from probe_precheck.releases import RELEASES
from probe_precheck.settings import LANGUAGES

if TYPE_CHECKING:
    from probe_precheck.comparison import DetailsComparison

DETAILS_PATTERN = "accuracy_checking_details_*.csv"
MAX_SHOWN_ROWS = 5
_PATH = click.Path(path_type=Path)


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

    npu, gpu = npu or _find_details_file("--npu"), gpu or _find_details_file("--gpu")
    if npu.resolve() == gpu.resolve():
        raise UserError(f"Both sides are {npu}.", "Give the details csv of two devices with --npu and --gpu.")
    manager = ctx.find_object(Manager) or Manager()
    assignment = Assignment(manager, release, standards)
    comparison = compare_details(npu, gpu, assignment)
    for name in comparison.missing[:MAX_SHOWN_ROWS]:
        console.warn(f"{name} is not in {gpu.name}; skipped.")
    if len(comparison.missing) > MAX_SHOWN_ROWS:
        console.warn(f"{len(comparison.missing) - MAX_SHOWN_ROWS} more rows are not in {gpu.name}.")
    with claim_time_stamp(output, get_time_stamp()) as claim:
        write_comparison(comparison, output, claim, language)
    counts = _print_comparison(comparison)
    for action, values in plugin_options.collect_option_actions(ctx, manager):
        action(manager, ResultPaths(comparison.result, npu, gpu), values)
    return _choose_exit_code(counts, fail_on)


def _print_comparison(comparison: DetailsComparison) -> Counter[str]:
    """Print the summary of a comparison, and return the number of APIs of each level."""
    from probe_precheck.translation import translate

    counts: Counter[str] = Counter()
    worst: list[tuple[str, str, str]] = []
    for api, (forward, backward, messages) in comparison.apis.items():
        statuses = [status.value for status in (forward, backward) if status is not None]
        level = next((candidate for candidate in ("error", "warning", "pass") if candidate in statuses), "SKIP")
        level = "error" if api in comparison.beyond else level
        counts[level] += 1
        if level in ("error", "warning"):
            text = " ".join(message.text("en") for message in messages)
            worst.append((level, api, translate(text, "en")))
    _print_counts(comparison, counts)
    for level, api, message in sorted(worst, key=lambda candidate: candidate[0])[:MAX_SHOWN_ROWS]:
        console.show(f"    {console.style(make_printable(api), bold=True)}  {level}  {make_printable(message)}")
    console.show(f"  wrote {comparison.result}")
    console.show(f"  wrote {comparison.details}")
    return counts


def _print_counts(comparison: DetailsComparison, counts: Counter[str]) -> None:
    console.show(
        f"{format_count(len(comparison.apis), 'API')} judged by {format_count(len(comparison.rows), 'output')}"
    )
    words = (
        ("error", "error", "red"),
        ("warning", "warning", "yellow"),
        ("pass", "pass", "green"),
        ("SKIP", "SKIP", None),
    )
    if comparison.beyond:
        only = f"{len(comparison.beyond):,} by no rule of the tables, but off by more than rounding explains"
        words = (("error", f"error ({only})", "red"), *words[1:])
    parts = [console.style(f"{counts[key]:,} {word}", fg=color if counts[key] else None) for key, word, color in words]
    console.show(f"  {', '.join(parts)}")


def _choose_exit_code(counts: Counter[str], fail_on: str | None) -> int:
    is_judged = any(counts[level] for level in ("error", "warning", "pass"))
    if not is_judged:
        console.warn("No API was judged, because all are skipped.")
    if fail_on and not is_judged:
        console.error("--fail-on cannot be judged: no API was judged.", "The messages in the result say why.")
        return EXIT_USER_ERROR
    levels = {"error": ("error",), "warning": ("error", "warning")}.get(fail_on or "", ())
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
