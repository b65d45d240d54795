"""Benchmark of golden tests: ``python golden_faults.py [--work DIRECTORY] [CASE …]``.

Each case of the benchmark ``faults`` becomes a test with ``probe_golden``. The golden file is written from the
golden program; then the test runs the target program. A fault must fail the test, its first cause, as the printed
command shows it, must name the fault, and the failure must print the cause's line of code. A control must pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from faults.cases import Case  # noqa: E402
from faults.listed import chosen  # noqa: E402
from faults.score import cause_of  # noqa: E402

TEST = """
import os
import pytest
from faults.listed import chosen


class Steps:
    def __init__(self, golden):
        self.golden = golden

    def start(self, model):
        self.block = self.golden.record(model)
        self.block.__enter__()

    def stop(self):
        self.block.__exit__(None, None, None)


@pytest.mark.parametrize("case", NAMES)
def test_case(probe_golden, case):
    chosen([case])[0].build("TARGET" in os.environ).run(Steps(probe_golden))
"""
COMMAND = re.compile(r"^Show more: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """The result of a case.

    Attributes:
        failure: The failure of the test; empty if it passed.
        word: The result in a word.
        shown: What a person would see first.
    """

    case: Case
    failure: str
    word: str
    shown: str = ""

    @property
    def is_right(self) -> bool:
        return self.word in ("right", "agree")


def run_pytest(directory: Path, *options: str, target: bool = False) -> dict[str, str]:
    """Run the tests; return the failure of each case, empty if it passed."""
    report = directory / "report.xml"
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": paths} | ({"TARGET": "1"} if target else {})
    base = directory / ("target" if target else "golden")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={base}",
               f"--junit-xml={report}", *options]  # fmt: skip
    subprocess.run(command, cwd=directory, env=variables, stdout=subprocess.DEVNULL)
    failures = {}
    for test in ET.parse(report).iter("testcase"):
        failed = [child for child in test if child.tag in ("failure", "error")]
        name = test.attrib["name"].removeprefix("test_case[").removesuffix("]")
        failures[name] = (failed[0].text or failed[0].attrib.get("message", "")) if failed else ""
    return failures


def judge(case: Case, failure: str, directory: Path) -> Result:
    """Return the result of a case by the failure of its test."""
    if case.is_control:
        return Result(case, failure, "ALARM" if failure else "agree", failure)
    if not failure:
        return Result(case, failure, "SILENT")
    command = COMMAND.search(failure)
    if command is None:
        return Result(case, failure, "WRONG", failure)
    *words, output = shlex.split(command[1])
    words[0] = str(Path(sys.executable).with_name("probe"))
    subprocess.run([*words, output, "--format", "csv"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    causes = json.loads(sorted(Path(output).glob("answer_*.json"))[-1].read_text("utf-8"))["causes"]
    cause = cause_of(causes[0])
    is_shown = not cause.where or " ".join(cause.where.split())[:40] in " ".join(failure.split())
    word = "right" if case.is_named_by(cause) and is_shown else "WRONG"
    return Result(case, failure, word, failure)


def main() -> None:
    """Write the goldens, run the targets, and print the results."""
    parser = argparse.ArgumentParser(description="Score golden tests on known numerical faults.")
    parser.add_argument("cases", nargs="*", help="names of cases; all if none is given")
    parser.add_argument("--work", type=Path, help="keep the golden files in this directory")
    parser.add_argument("--reuse", action="store_true", help="use the golden files of an earlier run")
    given = parser.parse_args()
    cases = chosen(given.cases)
    with tempfile.TemporaryDirectory(prefix="probe-golden-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        (work / "test_cases.py").write_text(f"NAMES = {[case.name for case in cases]!r}\n{TEST}")
        written = {} if given.reuse else run_pytest(work, "--probe-update")
        unwritten = [f"  {name}: {failure}" for name, failure in written.items() if failure]
        repeated = run_pytest(work)
        failures = run_pytest(work, target=True)
        results = [judge(case, failures[case.name], work) for case in cases]
        for result in results:
            size = next(work.glob(f"goldens/test_cases/test_case-{result.case.name}*.json"), None)
            print(f"{result.case.name:20} {result.word:8} {size.stat().st_size if size else 0:8,} bytes")
        print(
            *(
                f"\n{one.case.name} {one.word}: {one.case.description}\n{one.shown}"
                for one in results
                if not one.is_right
            )
        )
        print(*unwritten, sep="\n")
        faults = [one for one in results if not one.case.is_control]
        controls = [one for one in results if one.case.is_control]
        print(f"faults      {sum(one.is_right for one in faults)} of {len(faults)} fail with the right cause and line")
        print(f"controls    {sum(one.is_right for one in controls)} of {len(controls)} pass")
        print(f"goldens     {sum(not failure for failure in repeated.values())} of {len(repeated)} pass unchanged")


if __name__ == "__main__":
    main()
