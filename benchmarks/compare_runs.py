"""Benchmark of time and memory of ``probe compare`` and msprobe: ``python compare_runs.py [KIND …]``.

KIND is big, small, packed, stat (see make_runs.py), million (statistics of a million rows), tiny (two runs of
one call), help or growth. The commands of probe and msprobe run in turn, each in a process of its own. A line
shows the medians of CPU seconds, wall seconds and the largest resident set of one process; the lines of
msprobe also show the ratios to probe. Two further lines are of comparisons of statistics without
probe-diagnosis, with the compiled engine and without it.

Environment variables:
    PROBE_BENCH: A directory that keeps the runs between calls; by default a temporary one.
    MSPROBES: Paths of msprobe executables (mindstudio-probe 8.3 or 26), separated by colons.
    REPEATS: Number of runs of each command (default 3).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

KINDS = ("help", "tiny", "big", "small", "packed", "stat", "growth")
FORMATS = {"big": ("csv",), "small": ("csv",), "packed": ("csv",), "stat": ("csv", "xlsx")}
GROWTH = {"stat": (5_000, 20_000, 80_000), "big": (32, 128, 512)}
MILLION = 200_000
"""Number of calls with a million rows."""
REPEATS = int(os.environ.get("REPEATS", "3"))
PROBE = (sys.executable, "-m", "probe_core.cli")
PLUGINS = sorted(entry.name for entry in entry_points(group="probe") if entry.value.partition(".")[0] != "probe_sample")
"""The installed plugins except for that of the tests, whose judge takes single rows."""
WITHOUT_DIAGNOSIS = {"PROBE_PLUGINS": ",".join(name for name in PLUGINS if name not in ("diagnosis", "explain"))}
VARIANTS = {
    "without diagnosis": WITHOUT_DIAGNOSIS,
    "without diagnosis and compiler": {**WITHOUT_DIAGNOSIS, "PROBE_ENGINE": "numpy"},
}
"""Environment variables of further comparisons of statistics."""


@dataclass(frozen=True)
class Cost:
    """The cost of a command: CPU seconds, wall seconds, and MiB of its largest process."""

    cpu: float
    wall: float
    memory: float

    def __str__(self) -> str:
        return f"{self.cpu:7.2f} CPU s {self.wall:7.2f} s {self.memory:5.0f} MiB"


def measure(command: list[str], variables: dict[str, str]) -> Cost:
    """Run a command and return its cost, including the processes that it starts and waits for.

    Args:
        command: The command.
        variables: Additional environment variables.
    """
    environment = {**os.environ, "PROBE_PLUGINS": ",".join(PLUGINS), **variables}
    started, nothing = time.monotonic(), subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nothing, stderr=nothing, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024)


def medians(commands: dict[str, list[str]], variables: dict[str, str] | None = None) -> dict[str, Cost]:
    """Return the median cost of each command.

    The commands run in turn, after one run of probe that brings the files into memory.

    Args:
        commands: The commands by their names.
        variables: Additional environment variables.
    """
    measure(commands["probe"], variables or {})
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            costs[name].append(measure(command, variables or {}))
    return {
        name: Cost(*(statistics.median(getattr(cost, part) for cost in runs) for part in ("cpu", "wall", "memory")))
        for name, runs in costs.items()
    }


def msprobes() -> dict[str, str]:
    """Return the msprobe executables by their versions."""
    executables: dict[str, str] = {}
    ask = "import importlib.metadata as m; print(m.version('mindstudio-probe'))"
    for executable in filter(None, os.environ.get("MSPROBES", "").split(":")):
        python = Path(executable).with_name("python")
        executables[subprocess.check_output([python, "-c", ask], text=True).strip()] = executable
    return executables


def msprobe_command(version: str, executable: str, home: Path, kind: str, form: str) -> list[str] | None:
    """Return msprobe's command that compares the runs of a kind; None if it cannot, or takes too long."""
    out = str(home / f"out-{version}")
    if version.startswith("8.3"):
        if kind == "small" or (kind, form) == ("stat", "csv"):
            return None  # small takes more than 300 s; msprobe 8.3 writes no csv
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
    """Return probe's command that compares the runs in a directory."""
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
    """Return the directory of the runs of a kind, which are made if necessary."""
    runs = home / (kind if calls is None else f"{kind}-{calls}")
    if not runs.exists():
        maker = Path(__file__).with_name("make_runs.py")  # not imported, to keep torch out of this process
        subprocess.run([sys.executable, maker, runs, kind, *([] if calls is None else [str(calls)])], check=True)
    return runs


def show(label: str, costs: dict[str, Cost]) -> None:
    """Print one line for probe and one for each version of msprobe."""
    probe = costs.pop("probe")
    print(f"{label:12} probe  {probe}", flush=True)
    for version, cost in costs.items():
        ratio = f"{cost.cpu / probe.cpu:5.1f}x CPU {cost.wall / probe.wall:5.1f}x wall"
        print(f"{label:12} {version:6} {cost}  {ratio}", flush=True)


def compare_kind(home: Path, kind: str) -> None:
    """Measure one kind of runs in its formats."""
    runs = made(home, kind)
    for form in FORMATS[kind]:
        commands = {"probe": probe_command(runs, home, form)}
        if kind != "packed":
            for version, executable in msprobes().items():
                command = msprobe_command(version, executable, home, kind, form)
                if command:
                    commands[version] = command
        show(f"{kind} {form}", medians(commands))
    if kind == "stat":
        show_variants(runs, home, kind)


def show_variants(runs: Path, home: Path, label: str) -> None:
    """Measure the further comparisons of statistics."""
    for name, variables in VARIANTS.items():
        show(f"{label} csv {name}", medians({"probe": probe_command(runs, home, "csv")}, variables))


def million(home: Path) -> None:
    """Measure runs of a million rows."""
    runs = made(home, "stat", MILLION)
    show("million csv", medians({"probe": probe_command(runs, home, "csv")}))
    show_variants(runs, home, "million")


def tiny(home: Path) -> None:
    """Measure two runs of one call."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0,
            "Mean": 0.5, "Norm": 1.0, "requires_grad": False}  # fmt: skip
    call = {"input_args": [leaf, leaf], "input_kwargs": {}, "output": [leaf]}
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    for side in ("npu", "bench"):
        directory = home / "tiny" / side / "step0" / "rank0"
        directory.mkdir(parents=True, exist_ok=True)
        data = {"Torch.add.0.forward": call}
        (directory / "dump.json").write_text(json.dumps({**head, "data": data}), encoding="utf-8")
    show("tiny csv", medians({"probe": probe_command(home / "tiny", home, "csv")}))


def growth(home: Path) -> None:
    """Measure runs of 1, 4 and 16 times a size."""
    for kind, sizes in GROWTH.items():
        for calls in sizes:
            show(
                f"{kind} x{calls // sizes[0]}",
                medians({"probe": probe_command(made(home, kind, calls), home, "csv")}),
            )


OTHERS = {"growth": growth, "million": million, "tiny": tiny}
"""Measurements of kinds that msprobe is not compared on."""


def main() -> None:
    """Run the benchmark and print its results."""
    home = Path(os.environ.get("PROBE_BENCH") or tempfile.mkdtemp(prefix="probe-bench-"))
    for kind in sys.argv[1:] or KINDS:
        if kind == "help":
            others = {version: [executable, "--help"] for version, executable in msprobes().items()}
            show("--help", medians({"probe": [*PROBE, "--help"], **others}))
        elif kind in OTHERS:
            OTHERS[kind](home)
        else:
            compare_kind(home, kind)


if __name__ == "__main__":
    main()
