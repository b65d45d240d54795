"""Damage recorded runs in every way a disk, a hand or a stranger may, and compare them in-process.

``python tests/mutate_dumps.py [--count 2000] [--seed 0] [--data ZIP] [--only NUMBER] [--jobs 2]``

Case N of seed S is always the same case. A case passes when ``probe compare`` ends with 0 or 2 in
good time, without a traceback, runs nothing that a file asks for, and leaves whole files or none.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from support.faults.mutations.runner import run_cases

DATA = Path(__file__).resolve().parent / "data" / "runs-8.3.3.zip"


def main() -> int:
    """The script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", type=int, help="run this case alone and show it")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.only is not None:
        (outcome,) = run_cases(given.data, given.seed, [given.only])
        print(outcome)
        return int(bool(outcome.problems))
    outcomes = run_cases(given.data, given.seed, range(given.count), given.jobs)
    failed = [outcome for outcome in outcomes if outcome.problems]
    for outcome in failed:
        print(outcome)
    slowest = max(outcomes, key=lambda outcome: outcome.seconds, default=None)
    if slowest:
        print(f"slowest: case {slowest.number}, {slowest.mutation}, {slowest.seconds:.1f} s")
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
