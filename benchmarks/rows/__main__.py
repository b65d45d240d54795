"""Benchmark of comparisons of rows; see ``rows/__init__.py``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows.cases import CASES, FAULTS, PAIRS
from rows.score import record, score


def main() -> None:
    """Run the cases that the command line names, or all, and print their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases to run; all if none is named")
    parser.add_argument("--work", type=Path, help="directory to keep the runs in")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.names or [*CASES]
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        scores = []
        for name in names:
            record(CASES[name], work)
            result = score(CASES[name], work)
            scores.append(result)
            word = "right" if result.is_right else "WRONG"
            print(
                f"{word}  {name:24} {result.outcome:14} {result.compared:4} of {result.recorded:4} compared, "
                f"{result.unknown} unknown axes, {result.seconds:.1f} s  {result.first}",
                flush=True,
            )
    for title, cases in (("pairs that agree", PAIRS), ("faults named first", FAULTS)):
        chosen = [result for result in scores if result.case in cases]
        print(f"{title}: {sum(result.is_right for result in chosen)} of {len(chosen)}")


if __name__ == "__main__":
    main()
