"""Benchmark of ``git bisect run probe check``; see ``bisection/__init__.py``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bisection.program import CHANGES, PlantedChange  # noqa: E402
from bisection.repository import COMMITS, SCRIPT_NAME, GeneratedRepository, generate, git  # noqa: E402

PROBE = (sys.executable, "-m", "probe_core.cli")
TASK = "statistics"


@dataclass(frozen=True)
class Bisection:
    """The end of a bisection.

    Attributes:
        code: The exit code of ``git bisect run``.
        first_bad: The commit that git names; empty for none.
        checks: Number of commits that were checked.
        skipped: Number of those that were skipped.
        output: What was printed.
    """

    code: int
    first_bad: str
    checks: int
    skipped: int
    output: str


def bisect(repository: GeneratedRepository, golden: Path, *options: str) -> Bisection:
    """Record the first commit as the golden, and bisect between it and the last commit."""
    path, commits = repository.path, repository.commits
    git(path, "checkout", "-q", commits[0])
    subprocess.run([*PROBE, "run", "-o", golden, "--step", "0,1", "--task", TASK, SCRIPT_NAME], cwd=path, check=True,
                   capture_output=True)  # fmt: skip
    git(path, "bisect", "start", commits[-1], commits[0])
    command = ["git", "bisect", "run", *PROBE, "check", str(golden), *options, "--", sys.executable, SCRIPT_NAME]
    done = subprocess.run(command, cwd=path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = git(path, "bisect", "log").splitlines()
    first_bad = [line.split("[")[1].split("]")[0] for line in log if line.startswith("# first bad commit:")]
    checks = [line for line in log if line.startswith(("git bisect good", "git bisect bad", "git bisect skip"))]
    skipped = sum(line.startswith("git bisect skip") for line in checks)
    return Bisection(done.returncode, "".join(first_bad), len(checks), skipped, done.stdout)


def measure(change: PlantedChange, seed: int, work: Path, commits: int = COMMITS) -> bool:
    """Bisect one generated repository, print a line, and return True if git names the planted commit."""
    begun = time.perf_counter()
    repository = generate(work / change.name, change, seed, commits)
    bisection = bisect(repository, work / f"golden-{change.name}")
    is_right = bisection.code == 0 and bisection.first_bad == repository.commits[repository.planted]
    seconds = time.perf_counter() - begun
    print(
        f"{change.name:14} {'right' if is_right else 'WRONG'}  planted {repository.planted:2}  "
        f"checks {bisection.checks}  skipped {bisection.skipped}  {seconds:.0f} s",
        flush=True,
    )
    if not is_right:
        print(bisection.output[-3000:])
    return is_right


def main() -> None:
    """Bisect all repositories, or those named, and print how many end at the planted commit."""
    parser = argparse.ArgumentParser(prog="bisection", description="Score git bisect run probe check.")
    parser.add_argument("names", nargs="*", choices=[[], *(change.name for change in CHANGES)])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen = [change for change in CHANGES if change.name in (given.names or [change.name])]
    with tempfile.TemporaryDirectory(prefix="probe-bisection-") as temporary:
        right = [measure(change, given.seed + place, Path(temporary)) for place, change in enumerate(chosen)]
    print(f"{sum(right)} of {len(right)} bisections end at the planted commit")
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
