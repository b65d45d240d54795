"""Benchmark of ``probe compare`` on 100,000 rows of older tools: ``python older_dumps.py``.

The statistics workload of compare_runs.py is written again as dumps of ptdbg_ascend 2.3 and 4.0 and of
torch_npu.hooks 5.0. The comparisons run in turn, each in a process of its own; a line shows the medians of
CPU seconds, wall seconds and the largest resident set, and the ratio of CPU seconds to that workload.

Environment variables:
    PROBE_BENCH: A directory that keeps the runs between calls; by default a temporary one.
    REPEATS: Number of runs of each command (default 3).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare_runs import made, medians, probe_command

SIDES = ("npu", "bench")
FORMATS = ("ptdbg 2.3", "ptdbg 4.0", "hooks 5.0")


def values_in(run: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the call, the place and the leaf of each value of a run of statistics."""
    for call, sides in json.loads((run / "dump.json").read_text())["data"].items():
        for side, leaves in (("input", sides["input_args"]), ("output", sides["output"])):
            for place, leaf in enumerate(leaves):
                yield call, f"{side}.{place}", leaf


def rows_of(run: Path, form: str) -> Iterator[Any]:
    """Yield the rows of an older tool's file."""
    for number, (call, place, leaf) in enumerate(values_in(run)):
        name = f"{call.replace('.', '_')}_{place}"
        statistics = [leaf[key] for key in ("Max", "Min", "Mean", "Norm")]
        if form == "ptdbg 2.3":
            yield [name, 1, [], leaf["dtype"], leaf["shape"], statistics[:3]]
        elif form == "ptdbg 4.0":
            yield [name, 0, [], leaf["dtype"], leaf["shape"], statistics]
        else:
            api, _, phase = call.rpartition(".")
            name = f"{number}_{api.rpartition('.')[0].replace('.', '_')}_{phase}_{place}"
            yield [name, [*statistics[:1] * 10, *statistics[:3]], leaf["dtype"], leaf["shape"]]


def write(home: Path, runs: Path, form: str) -> Path:
    """Return the directory with both files of a format, which are written if necessary."""
    directory = home / form.replace(" ", "-")
    if not directory.exists():
        for side in SIDES:
            file = directory / side / "dump.pkl"
            file.parent.mkdir(parents=True)
            lines = map(json.dumps, rows_of(runs / side / "step0" / "rank0", form))
            file.write_text("\n".join(lines) + "\n")
    return directory


def run(home: Path) -> None:
    """Measure all formats, and print a line for each."""
    runs = made(home, "stat")
    commands = {"probe": probe_command(runs, home, "csv")}
    commands |= {form: probe_command(write(home, runs, form), home, "csv") for form in FORMATS}
    costs = medians(commands)
    print(f"{'statistics workload':22} {costs['probe']}")
    for form in FORMATS:
        print(f"{form:22} {costs[form]} {costs[form].cpu / costs['probe'].cpu:5.2f}")


if __name__ == "__main__":
    if "PROBE_BENCH" in os.environ:
        run(Path(os.environ["PROBE_BENCH"]))
    else:
        with tempfile.TemporaryDirectory() as given:
            run(Path(given))
