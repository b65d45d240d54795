"""Benchmark of known numerical faults; see ``faults/__init__.py``."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

PLUGINS = "pytorch,metrics,reporters,diagnosis,matching,precheck"
os.environ.setdefault("PROBE_PLUGINS", PLUGINS)  # the score is that of probe alone
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from compare_runs import msprobes  # noqa: E402

from faults.cases import Case  # noqa: E402
from faults.listed import chosen  # noqa: E402
from faults.msprobe_score import MsprobeScore, score_msprobes  # noqa: E402
from faults.record import TASKS  # noqa: E402
from faults.score import LOOKED_AT, Score, score  # noqa: E402

RECORDED = "recorded.txt"


def recorder_state() -> str:
    """Return a hash of the cases and of the recorder; runs of another state are recorded again."""
    import probe_pytorch
    import probe_recording

    state = hashlib.sha256()
    packages = (Path(str(package.__file__)).parent for package in (probe_pytorch, probe_recording))
    for folder in (HERE, *packages):
        for file in sorted(folder.rglob("*.py")):
            if file.name not in ("score.py", "truth.py", "__main__.py") and "msprobe" not in file.name:
                state.update(file.read_bytes())
    return state.hexdigest()


def record_missing(cases: Sequence[Case], work: Path, *, with_reference: bool = False) -> None:
    """Record those cases that ``work`` does not hold, in one process."""
    option = ["--reference"] if with_reference else []
    state = " ".join([recorder_state(), *option])
    marks = {case: work / case.name / RECORDED for case in cases}
    missing = [case for case, mark in marks.items() if not (mark.is_file() and mark.read_text() == state)]
    if not missing:
        return
    command = [sys.executable, "-m", "faults.record", *option, str(work), *(case.name for case in missing)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"The cases could not be recorded:\n{done.stderr[-3000:]}")
    print(*(line for line in done.stdout.splitlines() if "float64" in line), sep="\n", file=sys.stderr)
    for case in missing:
        marks[case].write_text(state)


def shown(found: Score) -> list[str]:
    """Return the lines on a wrong answer: the case, and the causes that a person would read first."""
    lines = [f"  {found.case.name} {found.task}: {found.word}; verdict {found.verdict}. {found.case.description}"]
    for number, cause in enumerate(found.causes[:LOOKED_AT], 1):
        modules = " ".join(cause.modules) or "no module"
        lines += [f"    {number}. {cause.row or cause.op}  [step {cause.step}; {modules}]"]
        lines += [f"       {text}" for text in (cause.statement, cause.where) if text]
    return lines


def totals(found: Sequence[Score]) -> str:
    """Return one line on the cases recorded in one way."""
    faults = [one for one in found if not one.case.is_control]
    controls = [one for one in found if one.case.is_control]
    near = sum(0 < one.rank <= LOOKED_AT for one in faults)
    return (
        f"right {sum(one.is_right for one in faults)} of {len(faults)}, within three {near}, "
        f"silent {sum(not one.causes for one in faults)}, "
        f"alarms {sum(one.is_alarm for one in controls)} of {len(controls)} controls, "
        f"false reasons {sum(len(one.false) for one in found)} of {sum(len(one.causes) for one in found)} "
        f"({sum(one.unchecked for one in found)} not checked)"
    )


def report(scores: Sequence[Score]) -> None:
    """Print a line for each case, the causes in wrong answers, false reasons, and the totals."""
    by_case: dict[str, list[Score]] = {}
    for one in scores:
        by_case.setdefault(one.case.name, []).append(one)
    width = max(map(len, by_case))
    print(f"{'case':{width}}  " + "  ".join(f"{task:10}" for task in TASKS) + "  description")
    for name, found in by_case.items():
        words = "  ".join(f"{one.word + ('*' if one.false else ''):10}" for one in found)
        print(f"{name:{width}}  {words}  {found[0].case.description}")
    print("(* with a false reason)")
    if wrong := [line for one in scores if not one.is_right for line in shown(one)]:
        print("\nNot right:", *wrong, sep="\n")
    if false := [f"  {one.case.name} {one.task}: {text}" for one in scores for text in one.false]:
        print("\nFalse reasons:", *false, sep="\n")
    print()
    for task in TASKS:
        print(f"{task:10}  {totals([one for one in scores if one.task == task])}")


def plain(one: Score) -> dict[str, Any]:
    """Return a score as plain data."""
    return {
        "case": one.case.name, "task": one.task, "result": one.word, "rank": one.rank, "verdict": one.verdict,
        "causes": [asdict(cause) for cause in one.causes], "false": one.false, "seconds": one.seconds,
    }  # fmt: skip


def plain_msprobe(version: str, one: MsprobeScore) -> dict[str, Any]:
    """Return the score of a version of msprobe as plain data."""
    tool = f"msprobe {version} {one.tool}"
    return {**plain(one), "tool": tool, "failed": one.failed, "false": None}


def main() -> None:
    """Record, compare and score the cases, and print the result."""
    parser = argparse.ArgumentParser(prog="faults", description="Score probe on known numerical faults.")
    parser.add_argument("cases", nargs="*", help="names of cases; all if none is given")
    parser.add_argument("--work", type=Path, help="keep the recorded runs in this directory, to use them again")
    parser.add_argument("--json", type=Path, help="write all numbers and statements to this file")
    parser.add_argument(
        "--reference", action="store_true", help="compare with --reference, a run of the golden in float64"
    )
    given = parser.parse_args()
    if importlib.util.find_spec("transformers") is None:
        sys.exit("The models need transformers, which is not installed: pip install -r requirements-dev.txt")
    cases, executables = chosen(given.cases), msprobes()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="probe-faults-") as temporary:
        work = given.work or Path(temporary)
        record_missing(cases, work.resolve(), with_reference=given.reference)
        recorded = time.perf_counter()
        scores = [found for case in cases for found in score(case, work, with_reference=given.reference)]
        ended = time.perf_counter()
        report(scores)
        print(f"minutes     {(ended - begun) / 60:.1f}: recording {(recorded - begun) / 60:.1f}, "
              f"comparing {sum(one.seconds for one in scores) / 60:.1f}")  # fmt: skip
        others = score_msprobes(executables, cases, work.resolve())
    if given.json:
        entries = [plain(one) for one in scores]
        entries += [plain_msprobe(version, one) for version, found in others.items() for one in found]
        given.json.write_text(json.dumps(entries, indent=1))


if __name__ == "__main__":
    main()
