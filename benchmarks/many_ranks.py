"""Benchmark of comparing eight ranks with one and with more jobs: ``python many_ranks.py [CALLS]``.

The ranks are copies of the runs *big* (see make_runs.py) with CALLS calls (default 96: 384 MiB per side and
rank). They are compared to csv with each number of jobs in turn. A line shows the median wall time of one
number of jobs and its ratio to the time of one job.

Environment variables:
    PROBE_BENCH: A directory that keeps the runs between calls; by default a temporary one.
    REPEATS: Number of runs of each command (default 3).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from compare_runs import PROBE, REPEATS, measure
from make_runs import make

from probe_core import engine

RANKS = 8


def made(home: Path, calls: int) -> Path:
    """Return the directory of the runs, which are made if necessary: one rank, and seven copies of it."""
    out = home / f"ranks-{calls}"
    if not (out / "whole").exists():
        sides = make(out, "big", calls)
        for side in sides:
            for rank in range(1, RANKS):
                shutil.copytree(side, side.with_name(f"rank{rank}"))
        (out / "whole").touch()
    return out


def main() -> None:
    """Run the benchmark and print its results."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 96
    with tempfile.TemporaryDirectory() as temporary:
        runs = made(Path(os.environ.get("PROBE_BENCH", temporary)), calls)
        numbers = sorted({1, 2, engine.count_cores()})
        walls: dict[int, list[float]] = {jobs: [] for jobs in numbers}
        for attempt in range(REPEATS + 1):  # the first one fills the page cache and is not counted
            for jobs in numbers:
                out = Path(temporary) / "out"
                command = [*PROBE, "compare", str(runs / "npu"), str(runs / "bench"), "-o", str(out)]
                cost = measure([*command, "-c", "--format", "csv", "--jobs", str(jobs)])
                shutil.rmtree(out)
                if attempt:
                    walls[jobs].append(cost.wall)
    single = statistics.median(walls[1])
    for jobs, times in walls.items():
        wall = statistics.median(times)
        print(f"{RANKS} ranks of {calls} calls, --jobs {jobs}: {wall:6.2f} s  {wall / single:5.2f} of one job")


if __name__ == "__main__":
    main()
