"""Time and memory of ``probe compare`` on three workloads: ``python compare_runs.py [KIND …]``.

Each is run three times in a process of its own; the figures are median CPU and wall seconds and
the largest resident set. Runs are made once, in ``$PROBE_BENCH`` or a temporary directory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("big", "small", "stat")

REPEATS = 3


def measure(command: list[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds, and MiB of one run of ``command``."""
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024


def main() -> None:
    """Print a line a workload and format."""
    home = Path(os.environ.get("PROBE_BENCH") or tempfile.mkdtemp(prefix="probe-bench-"))
    for kind in sys.argv[1:] or KINDS:
        if not (home / kind).exists():
            maker = Path(__file__).with_name("make_runs.py")  # not imported: torch would count as our memory
            subprocess.run([sys.executable, maker, home / kind, kind], check=True)
        for form in ("csv", "xlsx"):
            runs = [str(home / kind / side) for side in ("npu", "bench")]
            command = [sys.executable, "-m", "probe_core.cli", "compare", *runs, "-c",
                       "-o", str(home / "out"), "--format", form]  # fmt: skip
            cpu, wall, memory = map(statistics.median, zip(*(measure(command) for _ in range(REPEATS))))
            print(f"{kind:6} {form:5} {cpu:7.2f} CPU s {wall:7.2f} s {memory:6.0f} MiB")


if __name__ == "__main__":
    main()
