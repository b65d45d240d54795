"""The same cases by msprobe, where it is installed: what does each of its two commands name first?

MSPROBES names executables of msprobe 26, separated by colons; their environments need torch and transformers.
The programs are recorded by msprobe's PrecisionDebugger (level mix, all risk levels: every call that it can
record), and compared step by step, until a step names something:

- ``msprobe compare``: its table has a column Result: *pass*, *warning* or *error*. The measures beside it,
  such as the cosine, come without a judgement, so a user looks first at the first row that is marked, in the
  order of the table. This is read in two ways: the rows marked *error* alone, which raise fewer alarms, and
  those marked *warning* as well, which leave fewer faults silent.
- ``msprobe compare -da``: the nodes in its file ``diff_analyze_*.json``, in their order. This command reads
  the runs of ranks only, so the runs, of a single process each, are recorded under the name of rank 0.

A row or a node names its call, the modules around the call on record, its line of code and the row's message.
Where the right line asks for a certain row, any row of the call will do, for they stand side by side. msprobe
gives no further reasons in words, so there are none to hold against the tensors.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from faults.cases import Case, Cause
from faults.msprobe_result import Step, analysed, marked
from faults.record import SIDES, TASKS
from faults.score import AGREE, DIVERGED, LOOKED_AT, Score

HERE = Path(__file__).resolve().parent
ERRORS, MARKS, ANALYSIS = "compare", "compare, warnings too", "compare -da"
READINGS = {ERRORS: {"error"}, MARKS: {"error", "warning"}}
TOOLS = (*READINGS, ANALYSIS)
LIMIT = 600.0
"""Seconds that a recording or a command may take."""
FAILED = "FAILED"
OTHERS = ("score.py", "truth.py", "__main__.py", "record.py", "msprobe_score.py", "msprobe_result.py")
"""Files of this directory that change nothing in what msprobe records."""


@dataclass(frozen=True)
class MsprobeScore(Score):
    """The result of one tool of msprobe on a case.

    Attributes:
        tool: The command, and the rows of its table that count.
        failed: The last line of the error, if msprobe could not record or compare the case.
    """

    tool: str = ERRORS
    failed: str = ""

    @property
    def is_right(self) -> bool:
        """Return True if what is named first names the fault, or nothing is named in a control."""
        return not self.failed and super().is_right

    @property
    def is_alarm(self) -> bool:
        """Return True for a control in which something is named."""
        return not self.failed and super().is_alarm

    @property
    def word(self) -> str:
        """The result in a word."""
        return "failed" if self.failed else super().word


class Worker:
    """A process of msprobe's interpreter that records and compares; see ``msprobe_worker``.

    Attributes:
        failed: The last line of its error, if it could not be started.
    """

    def __init__(self, executable: Path, log: Path) -> None:
        command = [str(executable.with_name("python")), "-m", "faults.msprobe_worker"]
        with log.open("w") as printed:
            self._process = subprocess.Popen(
                command,
                cwd=HERE.parent,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
            )
        self._log = log
        self.failed = self._answer()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _answer(self) -> str:
        """Return the error of the last job; if the process ended, it fails all later ones."""
        assert self._process.stdout
        if line := self._process.stdout.readline():
            return str(json.loads(line)["error"])
        self.failed = last_line(self._log)
        return self.failed

    def do(self, log: Path, **job: Any) -> str:
        """Do a job; return the last line of its error, empty if there is none."""
        if self.failed:
            return self.failed
        assert self._process.stdin
        print(json.dumps({**job, "log": str(log), "limit": LIMIT}), file=self._process.stdin, flush=True)
        return self._answer()


def last_line(log: Path) -> str:
    """Return the last line of what was printed."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was printed")


def record_by_msprobe(worker: Worker, case: Case, home: Path, version: str) -> str:
    """Record a case below ``home``, unless it is there; return the last line of the error of what failed."""
    state = hashlib.sha256(version.encode())
    for file in sorted(HERE.glob("*.py")):
        if file.name not in OTHERS:
            state.update(file.read_bytes())
    mark = home / "recorded.txt"
    if mark.is_file() and mark.read_text() == state.hexdigest():
        return ""
    shutil.rmtree(home, ignore_errors=True)
    for task in TASKS:
        (home / task).mkdir(parents=True)
        for side in SIDES:
            path = home / task / side
            job = {"case": case.name, "task": task, "side": side, "path": str(path)}
            if failed := worker.do(path.with_suffix(".log"), **job):
                return f"recording {task}, {side}: {failed}"
    mark.write_text(state.hexdigest())
    return ""


def compare(worker: Worker, runs: Path, number: int, output: Path, *options: str) -> str:
    """Compare a step by msprobe into a new directory; return the last line of the error of what failed."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    sides = [str(runs / side / f"step{number}") for side in ("target", "golden")]
    log = output.with_suffix(".log")
    command = ["compare", "-tp", sides[0], "-gp", sides[1], "-o", str(output), *options]
    failed = worker.do(log, command=command)
    if failed or any(output.glob("compare_result_*")):
        return failed
    return last_line(log)  # msprobe may end without an error code


@dataclass
class Named:
    """The calls that a tool names in a case recorded in one way.

    Attributes:
        causes: Those of the first step in which it names any.
        failed: The last line of its error.
        seconds: Duration of its commands.
    """

    causes: list[Cause] = field(default_factory=list)
    failed: str = ""
    seconds: float = 0.0


def named(worker: Worker, runs: Path) -> dict[str, Named]:
    """Compare the two runs in a directory by each tool, step by step, until it names something or fails."""
    found = {tool: Named() for tool in TOOLS}
    numbers = sorted(int(re.sub(r"\D", "", path.name)) for path in (runs / "target").glob("step*"))
    for number in numbers:
        for command, options in ((tuple(READINGS), ()), ((ANALYSIS,), ("-da",))):
            tools = [tool for tool in command if not (found[tool].causes or found[tool].failed)]
            if not tools:
                continue
            output = runs / f"output{number}{''.join(options)}"
            begun = time.perf_counter()
            failed = compare(worker, runs, number, output, *options)
            seconds = time.perf_counter() - begun
            step = Step(runs / "target" / f"step{number}" / "rank0", number)
            for tool in tools:
                causes = [] if failed else causes_in(output, step, tool)
                found[tool] = Named(causes, failed, found[tool].seconds + seconds)
    return found


def causes_in(output: Path, step: Step, tool: str) -> list[Cause]:
    """Return what a tool names in the files of a command."""
    if tool == ANALYSIS:
        return [cause for file in output.glob("diff_analyze_*.json") for cause in analysed(file, step)]
    return marked(next(output.glob("compare_result_*.csv")), step, READINGS[tool])


def msprobe_scores(worker: Worker, case: Case, home: Path, failed: str = "") -> list[MsprobeScore]:
    """Return a score for each task and tool of a case below ``home``, whose recording may have failed."""
    scores = []
    for task in TASKS:
        found = dict.fromkeys(TOOLS, Named([], failed)) if failed else named(worker, home / task)
        scores += [scored(case, task, tool, one) for tool, one in found.items()]
    return scores


def scored(case: Case, task: str, tool: str, found: Named) -> MsprobeScore:
    """Return the score of what a tool names."""
    places = [place for place, cause in enumerate(found.causes, 1) if case.is_named_by(cause)]
    verdict = FAILED if found.failed else DIVERGED if found.causes else AGREE
    rank = places[0] if places else 0
    return MsprobeScore(case, task, verdict, found.causes, rank, seconds=found.seconds, tool=tool, failed=found.failed)


def msprobe_totals(found: Sequence[MsprobeScore]) -> str:
    """Return one line on what a tool says of the cases recorded in one way."""
    faults = [one for one in found if not one.case.is_control]
    controls = [one for one in found if one.case.is_control]
    near = sum(0 < one.rank <= LOOKED_AT for one in faults)
    silent = sum(not one.causes and not one.failed for one in faults)
    return (
        f"right {sum(one.is_right for one in faults)} of {len(faults)}, within three {near}, "
        f"silent {silent}, alarms {sum(one.is_alarm for one in controls)} of {len(controls)} controls, "
        f"false reasons -, failed {sum(bool(one.failed) for one in found)}"
    )


def report_msprobe(version: str, scores: Sequence[MsprobeScore]) -> None:
    """Print a line a case, what failed, and the totals of each tool."""
    columns = [(tool, task) for tool in TOOLS for task in TASKS]
    words: dict[str, dict[tuple[str, str], str]] = {}
    for one in scores:
        words.setdefault(one.case.name, {})[one.tool, one.task] = one.word
    width = max(map(len, words))
    print(f"\nmsprobe {version}: {'; '.join(TOOLS)}; each with {' and '.join(TASKS)}")
    for name, by_column in words.items():
        print(f"{name:{width}}  " + "  ".join(f"{by_column[column]:8}" for column in columns))
    if failed := [f"  {one.case.name} {one.task} {one.tool}: {one.failed}" for one in scores if one.failed]:
        print("\nFailed:", *failed, sep="\n")
    print()
    for tool, task in columns:
        found = [one for one in scores if (one.tool, one.task) == (tool, task)]
        print(f"{tool:{len(MARKS)}}  {task:10}  {msprobe_totals(found)}")


def score_msprobes(executables: Mapping[str, str], cases: Sequence[Case], work: Path) -> dict[str, list[MsprobeScore]]:
    """Score the cases by each msprobe, given by their versions, and print the results."""
    if not executables:
        print("msprobe: not installed (set MSPROBES)")
    return {
        version: score_msprobe(Path(executable), version, cases, work / f"msprobe-{version}")
        for version, executable in executables.items()
    }


def score_msprobe(executable: Path, version: str, cases: Iterable[Case], work: Path) -> list[MsprobeScore]:
    """Record the cases by one msprobe below ``work``, compare them, and print the result."""
    if not version.startswith("26."):
        print(f"\nmsprobe {version}: not scored, for its command line is not that of version 26")
        return []
    work.mkdir(parents=True, exist_ok=True)
    scores: list[MsprobeScore] = []
    recording = 0.0
    begun = time.perf_counter()
    with Worker(executable.absolute(), work / "worker.log") as worker:
        if worker.failed:
            print(f"\nmsprobe {version}: cannot be started with torch and transformers: {worker.failed}")
            return []
        for case in cases:
            started = time.perf_counter()
            failed = record_by_msprobe(worker, case, work / case.name, version)
            recording += time.perf_counter() - started
            scores += msprobe_scores(worker, case, work / case.name, failed)
    ended = time.perf_counter()
    report_msprobe(version, scores)
    spent = {tool: sum(one.seconds for one in scores if one.tool == tool) / 60 for tool in (ERRORS, ANALYSIS)}
    print(f"minutes     {(ended - begun) / 60:.1f}: recording {recording / 60:.1f}, "
          + ", ".join(f"{tool} {minutes:.1f}" for tool, minutes in spent.items()))  # fmt: skip
    return scores
