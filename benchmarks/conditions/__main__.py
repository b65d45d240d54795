"""Record, compare and score the cases; see ``conditions/__init__.py``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conditions.case import Case, Kind, Run
from conditions.cases import MAX_EQUAL_REPETITIONS, all_cases
from conditions.score import Result, Word, check
from conditions.workspace import NotRunError, RecordingError, Workspace

BAD_WORDS = (Word.WRONG, Word.MISSING, Word.FAILED, Word.INVALID, Word.NOT_RUN)


def record_all(cases: Sequence[Case], workspace: Workspace, jobs: int) -> None:
    """Record all runs, golden runs first: resumed runs read their checkpoints.

    A failure is reported when its case is scored.
    """
    runs = [run for case in cases for run in (case.golden, case.target)]
    workspace.prepare({run.source for run in runs}, {run.requirement for run in runs if run.requirement})

    def try_to_record(run: Run) -> None:
        with suppress(RecordingError, NotRunError):
            workspace.record(run)

    goldens = {workspace.output(case.golden): case.golden for case in cases}
    targets = {workspace.output(case.target): case.target for case in cases}
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(try_to_record, goldens.values()))
        list(pool.map(try_to_record, targets.values()))


def shown(result: Result) -> Iterator[str]:
    """Yield the lines on a result."""
    reason = f": {result.reason}" if result.reason else ""
    yield f"{result.case.kind.value} {result.case.name}: {result.word.value.upper()}{reason}"
    if result.answer:
        yield from (f"    {line.strip()}" for line in result.answer.head)
        if result.case.kind is Kind.RESUME and result.answer.causes:
            yield f"    first cause: {result.answer.first_cause}"


def totals(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of a table with one row per kind."""
    words = tuple(Word)
    yield f"{'kind':12}{'cases':>7}" + "".join(f"{word.value:>9}" for word in words) + f"{'in file':>9}"
    for kind in Kind:
        of_kind = [result for result in results if result.case.kind is kind]
        if not of_kind:
            continue
        count = Counter(result.word for result in of_kind)
        in_file = sum(result.is_in_file for result in of_kind)
        yield (
            f"{kind.value:12}{len(of_kind):7}"
            + "".join(f"{count[word]:9}" for word in words)
            + f"{in_file if kind in (Kind.CONDITIONS, Kind.SEEDS) else '-':>9}"
        )


def plain(result: Result) -> dict[str, object]:
    """Return a result as plain data."""
    answer = result.answer
    return {
        "kind": result.case.kind.value,
        "case": result.case.name,
        "word": result.word.value,
        "reason": result.reason,
        "head": list(answer.head) if answer else [],
        "first_cause": answer.first_cause if answer else "",
        "in_file": result.is_in_file,
    }


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="conditions", description="Score probe on differing conditions and on resumed runs."
    )
    kinds = [kind.value for kind in Kind]
    parser.add_argument("--work", type=Path, help="keep the recorded runs in this directory and use them again")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only the cases of these names")
    parser.add_argument("--kind", nargs="+", choices=kinds, default=kinds, help="only the cases of these kinds")
    parser.add_argument(
        "--repetitions",
        type=int,
        default=5,
        metavar="N",
        help="equal pairs per program; 20 make 100 pairs (default: 5)",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at the same time")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the cases that are right, too")
    given = parser.parse_args()
    if not 1 <= given.repetitions <= MAX_EQUAL_REPETITIONS:
        parser.error(f"--repetitions: expected a number from 1 to {MAX_EQUAL_REPETITIONS}")
    return given


def chosen_cases(given: argparse.Namespace) -> list[Case]:
    """Return the cases that the command line chooses."""
    cases = [case for case in all_cases(given.repetitions) if case.kind.value in given.kind]
    if unknown := set(given.only or ()) - {case.name for case in cases}:
        known = ", ".join(case.name for case in cases)
        sys.exit(f"There is no case {', '.join(sorted(unknown))}; there are: {known}.")
    return [case for case in cases if not given.only or case.name in given.only]


def main() -> None:
    """Record, compare and score the cases, and print the result."""
    given, begun = parse_arguments(), time.perf_counter()
    cases = chosen_cases(given)
    results = []
    with tempfile.TemporaryDirectory(prefix="probe-conditions-") as temporary:
        workspace = Workspace(given.work or Path(temporary))
        record_all(cases, workspace, given.jobs)
        with ThreadPoolExecutor(given.jobs) as pool:
            for result in pool.map(lambda case: check(case, workspace), cases):
                results.append(result)
                if result.word in BAD_WORDS or given.verbose:
                    print(*shown(result), sep="\n", flush=True)
    print("", *totals(results), f"{(time.perf_counter() - begun) / 60:.0f} minutes", sep="\n")
    if given.json:
        given.json.write_text(json.dumps([plain(result) for result in results], indent=1))


if __name__ == "__main__":
    main()
