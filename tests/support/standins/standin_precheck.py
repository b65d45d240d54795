"""A plugin for tests of the pre-check: a framework "standin" whose calls do to their process what they are called.

It needs no torch, so that its processes are up at once. ``install`` makes it a distribution in a directory
which a test puts on its path; nothing else sees it.
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Set
from pathlib import Path

import numpy as np
from probe_precheck.api import Array, Call, Outcome, Outputs, RunnerOptions, RunnerSpec
from probe_recording.reading.npy import load_npy
from probe_recording.reading.run import DumpRun
from probe_recording.reading.sniff import confidence

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ReaderSpec
from support.runs.recorded import tensor

FRAMEWORK = "standin"
SIGNALS = {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT, "killed": signal.SIGKILL}
OFF_BY = {"near": 0.0005, "far": 0.5}
"""The relative error of a call's first element: of the first a warning comes, of the second an error."""
DEEDS = ("good", *OFF_BY, *SIGNALS, "leave", "hang", "slow", "slower", "refuse", "no_memory", "cell",
         "broken")  # fmt: skip
SECONDS = {"hang": 60.0, "slow": 0.02, "slower": 0.2}
TRACE = "PROBE_STANDIN_TRACE"
"""The variable with the name of a file that each call appends the number of its process and its name to."""


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    return [ReaderSpec("standin", "runs of the stand-in", "support.standins.standin_precheck:Reader", FRAMEWORK)]


@hookimpl
def probe_runners() -> list[RunnerSpec]:
    return [RunnerSpec("standin", "deeds by name", "support.standins.standin_precheck:Runner", FRAMEWORK)]


class Reader:
    def sniff(self, path: Path) -> int:
        return confidence(path, FRAMEWORK)

    def open(self, path: Path) -> DumpRun:
        return DumpRun(path, FRAMEWORK, lambda name: load_npy(Path(name)))


class Runner:
    """Runs ``Functional.far.3`` by giving out numbers that are far off, and so on."""

    def apis(self) -> Set[str]:
        return set(DEEDS)

    def open(self, options: RunnerOptions) -> str:
        self._directory = options.error_directory
        return "cpu"

    def run(self, call: Call) -> Outcome:
        if path := os.environ.get(TRACE):
            with Path(path).open("a") as file:
                file.write(f"{os.getpid()} {call.name}\n")
        deed(call.api)
        outputs = outputs_of(call)
        return Outcome(outputs, None if call.backward is None else outputs)

    def save(self, call: Call, outcome: Outcome) -> str:
        assert self._directory is not None
        path = self._directory / f"{call.name}.py"
        path.write_text(f"print({call.name!r})\n")
        return str(path)


def deed(what: str) -> None:
    if what in SIGNALS:
        os.kill(os.getpid(), SIGNALS[what])
    if what in SIGNALS or what in SECONDS:
        time.sleep(SECONDS.get(what, 60.0))
    if what == "leave":
        os.write(2, b"the driver gave up\n")
        os._exit(7)
    if what == "refuse":
        raise RuntimeError("the kernel takes\nno such shape")
    if what == "broken":
        raise ModuleNotFoundError("No module named 'standin_part'")
    if what == "no_memory":
        raise MemoryError
    if what == "cell":
        raise RuntimeError('=HYPERLINK("http://x";"y"), "quoted"')


def outputs_of(call: Call) -> Outputs:
    """Sixteen numbers of the call's own, and the same with the first one off."""
    generator = np.random.default_rng(zlib.crc32(call.name.encode()))
    bench = generator.uniform(10, 20, 16)
    device = bench.astype(np.float32)
    device[0] *= 1 + OFF_BY.get(call.api, 0.0)
    return Outputs(Array(bench, "standin.float64"), Array(device, "standin.float32"))


def records(*names: str, backward: bool = False) -> dict[str, object]:
    """The records of calls, such as ``Functional.good.0``."""
    found: dict[str, object] = {}
    for name in names:
        found[f"{name}.forward"] = {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor()]}
        if backward:
            found[f"{name}.backward"] = {"input": [tensor()], "output": [tensor()]}
    return found


def install(site: Path) -> Path:
    """Make ``site`` a directory that this plugin is installed in; it is put on the path besides the tests'."""
    home = site / "probe_standin-1.0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-standin\nVersion: 1.0\n")
    (home / "entry_points.txt").write_text("[probe]\nstandin = support.standins.standin_precheck\n")
    return site
