"""Time and memory of ``probe compare``, beside those of the peer: ``python compare_runs.py [KIND …]``.

KIND is big, small, packed, stat (see make_runs.py), help or growth. Each command runs in a process of
its own, REPEATS times, with the peer's in turn; a line gives the medians of CPU and wall seconds and the
largest resident set of one process, then how many times as much each peer takes.

PROBE_BENCH   where the runs are kept between calls; else they are made in a temporary directory
PROBE_PEERS   msprobe executables to measure beside (mindstudio-probe 8.3 or 26), parted by colons
REPEATS       how often each command runs (3)
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

KINDS = ("help", "big", "small", "packed", "stat", "growth")
FORMATS = {"big": ("csv",), "small": ("csv",), "packed": ("csv",), "stat": ("csv", "xlsx")}
GROWTH = {"stat": (5_000, 20_000, 80_000), "big": (32, 128, 512)}
REPEATS = int(os.environ.get("REPEATS", "3"))
PROBE = (sys.executable, "-m", "probe_core.cli")


@dataclass(frozen=True)
class Cost:
    """What a command took: CPU and wall seconds, MiB of its largest process."""

    cpu: float
    wall: float
    memory: float

    def __str__(self) -> str:
        return f"{self.cpu:7.2f} CPU s {self.wall:7.2f} s {self.memory:5.0f} MiB"


def measure(command: list[str]) -> Cost:
    """The cost of one run of ``command``, the processes that it starts and waits for included."""
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024)


def medians(commands: dict[str, list[str]]) -> dict[str, Cost]:
    """The median cost of each command, run in turn; probe once more before, so that files are in memory."""
    measure(commands["probe"])
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            costs[name].append(measure(command))
    return {
        name: Cost(
            *(statistics.median(getattr(cost, part) for cost in found) for part in ("cpu", "wall", "memory"))
        )
        for name, found in costs.items()
    }


def peers() -> dict[str, str]:
    """The peers' executables by version."""
    found: dict[str, str] = {}
    ask = "import importlib.metadata as m; print(m.version('mindstudio-probe'))"
    for executable in filter(None, os.environ.get("PROBE_PEERS", "").split(":")):
        python = Path(executable).with_name("python")
        found[subprocess.check_output([python, "-c", ask], text=True).strip()] = executable
    return found


def peer_command(version: str, executable: str, home: Path, kind: str, form: str) -> list[str] | None:
    """How a peer compares the runs of a kind; None where it cannot, or not within minutes."""
    out = str(home / f"out-{version}")
    if version.startswith("8.3"):
        if kind == "small" or (kind, form) == ("stat", "csv"):
            return None  # more than 300 s; it writes xlsx alone
        return [
            executable,
            "-f",
            "pytorch",
            "compare",
            "-i",
            str(home / kind / "compare.json"),
            "-o",
            out,
            "-c",
        ]
    sides = [str(home / kind / side / "step0" / "rank0" / "dump.json") for side in ("npu", "bench")]
    return [
        executable,
        "compare",
        "-tp",
        sides[0],
        "-gp",
        sides[1],
        "-o",
        out,
        *(["--xlsx"] * (form == "xlsx")),
    ]


def probe_command(runs: Path, home: Path, form: str) -> list[str]:
    """How probe compares the runs in a directory."""
    return [
        *PROBE,
        "compare",
        str(runs / "npu"),
        str(runs / "bench"),
        "-c",
        "-o",
        str(home / "out"),
        "--format",
        form,
    ]


def made(home: Path, kind: str, calls: int | None = None) -> Path:
    """The runs of a kind, made if they are not there."""
    runs = home / (kind if calls is None else f"{kind}-{calls}")
    if not runs.exists():
        maker = Path(__file__).with_name("make_runs.py")  # not imported: torch would count as our memory
        subprocess.run(
            [sys.executable, maker, runs, kind, *([] if calls is None else [str(calls)])], check=True
        )
    return runs


def show(label: str, costs: dict[str, Cost]) -> None:
    """Print the line of one command, and one for each peer."""
    ours = costs.pop("probe")
    print(f"{label:12} probe  {ours}", flush=True)
    for version, cost in costs.items():
        ratio = f"{cost.cpu / ours.cpu:5.1f}x CPU {cost.wall / ours.wall:5.1f}x wall"
        print(f"{label:12} {version:6} {cost}  {ratio}", flush=True)


def compare_kind(home: Path, kind: str) -> None:
    """Measure one workload in its formats."""
    runs = made(home, kind)
    for form in FORMATS[kind]:
        commands = {"probe": probe_command(runs, home, form)}
        if kind != "packed":
            for version, executable in peers().items():
                command = peer_command(version, executable, home, kind, form)
                if command:
                    commands[version] = command
        show(f"{kind} {form}", medians(commands))


def growth(home: Path) -> None:
    """Measure runs of one, four and sixteen times a size."""
    for kind, sizes in GROWTH.items():
        for calls in sizes:
            show(
                f"{kind} x{calls // sizes[0]}",
                medians({"probe": probe_command(made(home, kind, calls), home, "csv")}),
            )


def main() -> None:
    """Print the table."""
    home = Path(os.environ.get("PROBE_BENCH") or tempfile.mkdtemp(prefix="probe-bench-"))
    for kind in sys.argv[1:] or KINDS:
        if kind == "help":
            others = {version: [executable, "--help"] for version, executable in peers().items()}
            show("--help", medians({"probe": [*PROBE, "--help"], **others}))
        elif kind == "growth":
            growth(home)
        else:
            compare_kind(home, kind)


if __name__ == "__main__":
    main()
