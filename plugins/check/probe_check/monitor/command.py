"""The commands ``probe monitor`` and ``probe monitor-alerts``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from probe_core import console
from probe_core.files.atomic import make_directory, write_text
from probe_core.library import DEFAULT_OUTPUT
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED
from probe_core.terminal.option_types import NumberRanges
from probe_core.terminal.spelling import Command, option

PAGE_FILE = "monitor.html"
ANSWER_FILE = "monitor_answer.json"


@click.command(cls=Command)
@click.argument("directory", type=click.Path(path_type=Path))
@option("-o", "--output", default=DEFAULT_OUTPUT, show_default=True, type=click.Path(path_type=Path),
    help="Directory of the result files; created if absent.")  # fmt: skip
@option("--fail-on", type=click.Choice(["suspect"]), help="Exit with 1 if a value is suspicious.")
def monitor(directory: Path, output: Path, fail_on: str | None) -> int:
    """Name the first value that left its usual range, and draw the curves of a monitored training.

    DIRECTORY is the output directory of TrainerMon, or that of one rank.

    \b
    probe monitor ./monitor_output -o out
    """
    from probe_check.monitor import sentences
    from probe_check.monitor.answer import encode_answer
    from probe_check.monitor.page import render_page
    from probe_check.monitor.run_reader import read_run
    from probe_check.monitor.verdict import judge

    run = read_run(directory)
    verdict = judge(run)
    make_directory(output)
    write_text(output / PAGE_FILE, render_page(run, verdict))
    write_text(output / ANSWER_FILE, json.dumps(encode_answer(run, verdict), indent=2))
    console.show(sentences.format_verdict(run, verdict))
    for line in sentences.format_details(run, verdict):
        console.show(f"  {line}", wrap=True)
    for name in (PAGE_FILE, ANSWER_FILE):
        console.show(f"  {output / name}")
    return EXIT_FINDINGS if verdict.findings and fail_on else EXIT_FINISHED


@click.command(cls=Command)
@option("-d", "--data_path", "data", required=True, type=click.Path(path_type=Path),
    help="The directory anomaly_detected of TrainerMon.")  # fmt: skip
@option("-o", "--out_path", "output", type=click.Path(path_type=Path),
    help="Directory of the result file; by default that of the events.")  # fmt: skip
@option("-k", "--topk", "count", type=click.IntRange(min=1), default=8, show_default=True,
    help="Number of events.")  # fmt: skip
@option("-s", "--step", "steps", default="", help="Steps to use: 0,2-4 or [0, 2]; all by default.")
def monitor_alerts(data: Path, output: Path | None, count: int, steps: str) -> int:
    """Sort the events of all ranks, and write the earliest ones.

    \b
    probe monitor-alerts -d ./monitor_output/anomaly_detected
    """
    from probe_check.monitor.events import SORTED_FILE, read_events, write_events

    numbers = NumberRanges().convert(steps.strip("[] "), None, None) if steps.strip("[] ") else ()
    events = read_events(data, numbers)[:count]
    path = (output or data) / SORTED_FILE
    make_directory(path.parent)
    write_events(path, events)
    for place, event in enumerate(events):
        console.show(f"{place}: {event.message}")
    if not events:
        console.show("No events.")
    console.show(f"  {path}")
    return EXIT_FINISHED
