"""Makes the cases, compares each in-process, and has it judged."""

from __future__ import annotations

import faulthandler
import io
import os
import shutil
import signal
import tempfile
import time
import traceback
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

from probe_core.cli.main import run as probe
from support.faults.mutations.case import Case
from support.faults.mutations.checks import judged
from support.faults.mutations.plans import command_line, drawn

VERSION = "v8.3.3"
STDERR = 2
LIMIT = 20
"""Seconds that a comparison may take."""


class TimedOut(BaseException):
    """A comparison took too long; no Exception, so that nobody in between keeps it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case; ``problems`` is empty if it passed."""

    seed: int
    number: int
    mutation: str
    line: tuple[str, ...] = ()
    code: int | None = None
    seconds: float = 0.0
    output: str = ""
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        long = len(self.output) > 6000
        shown = f"{self.output[:2000]}\n…\n{self.output[-4000:]}" if long else self.output
        head = f"seed {self.seed} case {self.number}: {self.mutation}, exit {self.code}"
        problems = [f"  - {problem}" for problem in self.problems]
        return "\n".join([head, f"  {' '.join(self.line)}", *problems, shown, "-" * 80])


def run_cases(data: Path, seed: int, numbers: Sequence[int], jobs: int = 1) -> list[Outcome]:
    """Run cases, shared out among ``jobs`` processes; the outcomes in the order of their numbers."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        source = Path(name) / "source"
        with zipfile.ZipFile(data) as archive:
            archive.extractall(source)
        shares = [numbers[start::jobs] for start in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            found = [one for share in pool.map(partial(_run_share, source, seed), shares) for one in share]
    return sorted(found, key=lambda outcome: outcome.number)


def _run_share(source: Path, seed: int, numbers: Sequence[int]) -> list[Outcome]:
    """Run cases in a process of their own; one that takes the process down costs itself alone."""
    found: list[Outcome] = []
    while len(found) < len(numbers):
        with suppress(BrokenProcessPool), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            for number in numbers[len(found) :]:
                found.append(pool.submit(run_case, source, seed, number).result())
        if len(found) < len(numbers):
            found.append(_crashed(seed, numbers[len(found)]))
    return found


def _crashed(seed: int, number: int) -> Outcome:
    """The outcome of a case that ended its process."""
    problem = "the process crashed, or hung where no signal gets through; see the stack on stderr"
    return Outcome(seed, number, _title(seed, number), problems=(problem,))


def _title(seed: int, number: int) -> str:
    """A sentence about the damage and the run."""
    plans, run, _ = drawn(seed, number)
    return f"{' + '.join(map(str, plans))} of {run}"


def run_case(source: Path, seed: int, number: int) -> Outcome:
    """Make case ``number`` of ``seed`` from the runs unpacked in ``source``, compare, and judge."""
    (plan, *more), run, rng = drawn(seed, number)
    with tempfile.TemporaryDirectory(dir=source.parent, prefix="case-") as name:
        case = Case(Path(name) / "runs", rng)
        shutil.copytree(source / run / VERSION, case.home, copy_function=os.link)
        line = command_line(plan, run, case)
        plan.mutate(case)
        for other in more:
            with suppress(Exception):  # it may find nothing left to damage
                other.mutate(case)
        encoding = "ascii" if rng.random() < 0.1 else "utf-8"
        code, output, seconds, problem = _compared(case.home, line, encoding)
        formats = line[line.index("--format") + 1].split(",")
        problems = [problem] if code is None else judged(case.home, formats, code, output)
        return Outcome(seed, number, _title(seed, number), tuple(line), code, seconds, output, tuple(problems))


def _compared(home: Path, line: Sequence[str], encoding: str) -> tuple[int | None, str, float, str]:
    """Run ``probe`` in ``home``: its exit code, all it printed, its seconds, what there is for a code."""
    memory = io.BytesIO()
    stream = io.TextIOWrapper(memory, encoding, write_through=True)
    before, start = Path.cwd(), time.monotonic()
    code: int | None = None
    problem = "run() gave no exit code"
    os.chdir(home)
    try:
        with redirect_stdout(stream), redirect_stderr(stream), _alarm():
            code = probe(list(line))
    except TimedOut:
        problem = f"took more than {LIMIT} s\n{traceback.format_exc(-6)}"
    except BaseException as error:
        problem = f"{type(error).__name__} came out of run()\n{traceback.format_exc()}"
    finally:
        os.chdir(before)
    return code, memory.getvalue().decode(encoding, "replace"), time.monotonic() - start, problem


@contextmanager
def _alarm() -> Iterator[None]:
    """End what takes more than LIMIT seconds; end the process where not even a signal gets through."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TimedOut

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT)
    faulthandler.dump_traceback_later(LIMIT + 5, exit=True, file=STDERR)
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, old)
