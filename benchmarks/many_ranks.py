"""Wall time of comparing eight ranks with ``--jobs 1`` and with more: ``python many_ranks.py [CALLS]``.

Eight ranks of the runs *big* (see make_runs.py) with CALLS calls each (96: 384 MiB a side and rank), compared
to csv REPEATS times for each number of jobs, in turn; a line gives the medians and their ratio to one job.

PROBE_BENCH   where the runs are kept between calls; else they are made in a temporary directory
REPEATS       how often each command runs (3)
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
    """The runs below ``home``, made unless they are there: one rank, and copies of it under other numbers."""
    out = home / f"ranks-{calls}"
    if not (out / "whole").exists():
        sides = make(out, "big", calls)
        for side in sides:
            for rank in range(1, RANKS):
                shutil.copytree(side, side.with_name(f"rank{rank}"))
        (out / "whole").touch()
    return out


def main() -> None:
    """Print the table."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 96
    with tempfile.TemporaryDirectory() as temporary:
        runs = made(Path(os.environ.get("PROBE_BENCH", temporary)), calls)
        numbers = sorted({1, 2, engine.cores()})
        walls: dict[int, list[float]] = {jobs: [] for jobs in numbers}
        for attempt in range(REPEATS + 1):  # the first fills the page cache
            for jobs in numbers:
                out = Path(temporary) / "out"
                command = [*PROBE, "compare", str(runs / "npu"), str(runs / "bench"), "-o", str(out)]
                cost = measure([*command, "-c", "--format", "csv", "--jobs", str(jobs)])
                shutil.rmtree(out)
                if attempt:
                    walls[jobs].append(cost.wall)
    one = statistics.median(walls[1])
    for jobs, found in walls.items():
        wall = statistics.median(found)
        print(f"{RANKS} ranks of {calls} calls, --jobs {jobs}: {wall:6.2f} s  {wall / one:5.2f} of one job")


if __name__ == "__main__":
    main()
