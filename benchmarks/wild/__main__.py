"""Record, compare and score the cases; see ``wild/__init__.py``."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from faults.cases import Cause
from faults.score import AGREE, DIVERGED, LOOKED_AT, checked, first_lines

from wild.cases import EQUAL, FAULT, ROUNDING, Case, Repository, repositories
from wild.record import USUAL, WAYS, RecordingError, Way, record

PLUGINS = "pytorch,metrics,reporters,diagnosis,matching,precheck"
"""The score is that of probe alone."""
TASKS = ("tensor", "statistics")
ALL_WAYS = 5
"""Number of repositories that are recorded in all ways: the first ones that the debugger can record."""
GOLDEN = Case("base", EQUAL)


@dataclass(frozen=True)
class Result:
    """Result of a comparison of a case.

    Attributes:
        rank: The place of the first cause that names the fault, from 1; 0 if none does.
        false: Statements that the recorded tensors contradict.
        failure: Why there is no result; empty if there is one.
    """

    repository: Repository
    case: Case
    way: Way
    task: str
    verdict: str = ""
    causes: Sequence[Cause] = ()
    rank: int = 0
    false: Sequence[str] = field(default_factory=list)
    failure: str = ""

    @property
    def word(self) -> str:
        """The result in a word; ``right`` and ``agree`` are good."""
        if self.failure:
            return "FAILED"
        if self.case.kind == FAULT:
            if not self.causes:
                return "SILENT"
            return {0: "WRONG", 1: "right"}.get(self.rank, "near" if self.rank <= LOOKED_AT else "WRONG")
        if self.verdict == AGREE:
            return "agree"
        return "CANNOT TELL" if self.verdict != DIVERGED else "ALARM"


def recorder_state() -> str:
    """Return a hash of the recorder; runs of another state are recorded again."""
    import probe_pytorch
    import probe_recording

    state = hashlib.sha256()
    for package in (probe_pytorch, probe_recording):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            state.update(file.read_bytes())
    return state.hexdigest()


def results(repository: Repository, ways: Sequence[Way], checkouts: Path, work: Path) -> Iterator[Result]:
    """Record and compare all cases of a repository."""
    state = recorder_state()
    for way in ways:
        home = work / repository.name / f"{way.recorder}-{way.level}"
        cases = (GOLDEN, *repository.cases)
        jobs = [(case, task) for case in cases for task in TASKS]

        def failure(job: tuple[Case, str], way: Way = way, home: Path = home) -> str:
            case, task = job
            output = home / case.name / task
            output.parent.mkdir(parents=True, exist_ok=True)
            try:
                record(repository, case, way, task, checkouts, output, state)
            except RecordingError as error:
                return str(error) or "failed without output"
            return ""

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = dict(zip([(case.name, task) for case, task in jobs], pool.map(failure, jobs)))
        for case in repository.cases:
            for task in TASKS:
                failed = failures[GOLDEN.name, task] or failures[case.name, task]
                if failed:
                    yield Result(repository, case, way, task, failure=failed)
                else:
                    yield compared(repository, case, way, task, home)


def compared(repository: Repository, case: Case, way: Way, task: str, home: Path) -> Result:
    """Compare the recording of a case with that of the base program."""
    verdict, causes = first_lines(
        home / case.name / task, home / GOLDEN.name / task, home / case.name / f"{task}-output"
    )
    places = [place for place, cause in enumerate(causes, 1) if case.is_named_by(cause)]
    false, _ = checked(home / case.name / "tensor", home / GOLDEN.name / "tensor", causes)
    return Result(repository, case, way, task, verdict, causes, places[0] if places else 0, false)


def shown(result: Result) -> Iterator[str]:
    """Yield the lines on a result that is not as it should be."""
    name = f"{result.repository.name} {result.case.name}"
    yield f"{name} [{result.way}, {result.task}]: {result.word}; {result.case.like}"
    if result.failure:
        yield f"    {result.failure[-500:]}"
    for number, cause in enumerate(result.causes[:LOOKED_AT], 1):
        yield f"    {number}. {cause.row or cause.op}  [step {cause.step}; {' '.join(cause.modules)}]"
        yield from (f"       {text}" for text in (cause.statement, cause.where) if text)
    yield from (f"    FALSE: {text}" for text in result.false)


def totals(chosen: Sequence[Result]) -> str:
    """Return one line on results recorded in one way."""
    words = {kind: Counter(one.word for one in chosen if one.case.kind == kind)
             for kind in (FAULT, EQUAL, ROUNDING)}  # fmt: skip
    faults = words[FAULT]
    untold = sum(one.case.kind == FAULT and one.verdict not in (DIVERGED, AGREE) for one in chosen)
    parts = [
        f"faults: {faults['right']} right of {faults.total()}",
        *(f"{faults[word]} {word.lower()}" for word in ("near", "WRONG", "SILENT", "FAILED") if faults[word]),
        f"{untold} cannot tell",
        *(f"{kind}: {words[kind]['agree']} agree of {words[kind].total()}, {words[kind]['ALARM']} alarms"
          for kind in (EQUAL, ROUNDING)),
        f"false reasons: {sum(len(one.false) for one in chosen)} of {sum(len(one.causes) for one in chosen)}",
    ]  # fmt: skip
    return "; ".join(parts)


def plain(result: Result) -> dict[str, object]:
    """Return a result as plain data."""
    return {
        "repository": result.repository.name, "case": result.case.name, "half": result.repository.half,
        "way": str(result.way), "task": result.task, "word": result.word, "verdict": result.verdict,
        "rank": result.rank, "causes": [asdict(cause) for cause in result.causes],
        "false": list(result.false), "failure": result.failure,
    }  # fmt: skip


def main() -> None:
    """Record, compare and score the cases, and print the result."""
    parser = argparse.ArgumentParser(prog="wild", description="Score probe on faults in public repositories.")
    parser.add_argument("names", nargs="*", metavar="REPOSITORY", help="owner/name; all if none is given")
    parser.add_argument("--half", choices=("known", "frozen"), help="only the repositories of this half")
    parser.add_argument("--work", type=Path, help="keep the recorded runs here (30 GB); a run that stopped goes on")
    parser.add_argument("--one-way", action="store_true", help="record all repositories in one way only")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    given = parser.parse_args()
    os.environ.setdefault("PROBE_PLUGINS", PLUGINS)
    if not os.environ.get("PROBE_WILD"):
        print("Not run: PROBE_WILD does not name a directory with checkouts called OWNER+NAME.")
        return
    checkouts, begun = Path(os.environ["PROBE_WILD"]), time.perf_counter()
    chosen = [one for one in repositories() if not given.half or one.half == given.half]
    if unknown := set(given.names) - {one.name for one in chosen}:
        sys.exit(f"There is no repository {', '.join(sorted(unknown))}; "
                 f"there are: {', '.join(one.name for one in chosen)}.")  # fmt: skip
    chosen = [one for one in chosen if not given.names or one.name in given.names]
    thorough = [] if given.one_way else [one for one in chosen if one.has_debugger][:ALL_WAYS]
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="probe-wild-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        for repository in chosen:
            if obstacle := repository.obstacle(checkouts):
                print(f"{repository.name}: not run ({obstacle})", flush=True)
                continue
            for result in results(repository, WAYS if repository in thorough else [USUAL], checkouts, work):
                found.append(result)
                if result.word not in ("right", "agree") or result.false:
                    print(*shown(result), sep="\n", flush=True)
            if not given.work:
                shutil.rmtree(work / repository.name, ignore_errors=True)
    print()
    for half in ("known", "frozen"):
        for way in WAYS:
            for task in TASKS:
                part = [one for one in found
                        if (one.repository.half, one.way, one.task) == (half, way, task)]  # fmt: skip
                if part:
                    print(f"{half:6}  {way!s:12}  {task:10}  {totals(part)}")
    print(f"{(time.perf_counter() - begun) / 60:.0f} minutes")
    if given.json:
        given.json.write_text(json.dumps([plain(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
