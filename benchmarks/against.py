"""Benchmark of recording against a golden: ``python against.py PART [--work DIRECTORY] [CASE …]``.

``faults`` records each case of the benchmark ``faults`` against its golden, once with statistics and once with
checksums. A fault is caught if the tensors of its cause are on disk. The cause is the one that names the fault, in a
comparison of full dumps. A control, whose values differ by rounding, must keep no tensor with statistics.
``repeats`` records a training step 100 times against itself. ``size`` compares the size of the tensors with that of a
full dump, for a Llama of 8 layers with hidden size 512. ``cost`` measures the CPU time of a step that agrees, for
this Llama and one of 4 layers with hidden size 128.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("PROBE_PLUGINS", "pytorch,metrics,reporters,diagnosis,matching,precheck")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from faults.cases import Case, Cause  # noqa: E402
from faults.listed import chosen  # noqa: E402
from faults.record import Recording, record  # noqa: E402
from faults.score import first_lines  # noqa: E402

SUMMARIES = ("statistics", "md5")
PARTS = ("faults", "repeats", "size", "cost")
REPEATS = 100


class AgainstRecording(Recording):
    """A recorder of statistics, compared with a golden if there is one."""

    def __init__(self, path: Path, summary: str, golden: Path | None) -> None:
        from probe_pytorch.debugger import PrecisionDebugger

        path.parent.mkdir(parents=True, exist_ok=True)
        section = {"summary_mode": summary} | ({} if golden is None else {"bench_path": str(golden)})
        config = path.with_suffix(".json")
        config.write_text(json.dumps({"dump_path": str(path), "level": "mix", "statistics": section}))
        self.kind = PrecisionDebugger
        self.kind._instance = None
        self.debugger = PrecisionDebugger(config_path=config)


@dataclass(frozen=True)
class Result:
    """The calls of a case that keep their tensors, and the causes that name its fault."""

    case: Case
    summary: str
    kept: list[Cause]
    causes: list[Cause]

    @property
    def is_right(self) -> bool:
        if self.case.is_control:
            return self.summary != "statistics" or not self.kept
        named = {(cause.step, cause.op) for cause in self.causes}
        return any((kept.step, kept.op) in named or self.case.is_named_by(kept) for kept in self.kept)


def list_kept(run: Path) -> list[Cause]:
    """Return the records with tensors on disk, as causes without a statement."""
    kept = []
    for file in sorted(run.glob("step*/rank*/dump.json")):
        step = int(file.parent.parent.name.removeprefix("step"))
        parents = json.loads((file.parent / "construct.json").read_text())
        for key, fields in json.loads(file.read_text())["data"].items():
            if '"data_name"' in json.dumps(fields):
                modules = []
                while parents.get((modules or [key])[-1]):
                    modules.append(parents[(modules or [key])[-1]])
                kept.append(Cause(key, f"{key}.input.0", "", tuple(modules), step=step))
    return kept


def run_case(case: Case, work: Path) -> list[Result]:
    """Record a case, and return what is kept in each mode."""
    home = work / case.name
    if not (home / "tensor" / "target").is_dir():
        record(case, work, ("tensor",))
    _, causes = first_lines(home / "tensor" / "target", home / "tensor" / "golden", home / "tensor" / "output")
    named = [cause for cause in causes if case.is_named_by(cause)]
    results = []
    for summary in SUMMARIES:
        golden, target = home / summary / "golden", home / summary / "target"
        for path, wrong, against in ((golden, False, None), (target, True, golden)):
            recording = AgainstRecording(path, summary, against)
            try:
                case.build(wrong).run(recording)
            finally:
                recording.finish()
        results.append(Result(case, summary, list_kept(target), named))
    return results


def score_faults(names: list[str], work: Path) -> None:
    """Record the cases and print the results."""
    results = []
    for case in chosen(names):
        for result in run_case(case, work):
            results.append(result)
            causes = ", ".join(f"step{cause.step} {cause.op}" for cause in result.causes[:2])
            print(
                f"{case.name:6} {result.summary:10} {'right' if result.is_right else 'WRONG':6} cause {causes or '-'}"
            )
            print(*(f"         step{kept.step} {kept.op}" for kept in result.kept), sep="\n")
    for summary in SUMMARIES:
        chosen_results = [result for result in results if result.summary == summary]
        faults = [result for result in chosen_results if not result.case.is_control]
        controls = [result for result in chosen_results if result.case.is_control]
        print(f"{summary:10} {sum(result.is_right for result in faults)} of {len(faults)} causes on disk, "
              f"{sum(bool(result.kept) for result in controls)} of {len(controls)} controls keep tensors")  # fmt: skip


def main() -> None:
    """Run the parts of the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description="Score recording against a golden.")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("cases", nargs="*", help="names of cases; all if none is given")
    parser.add_argument("--work", type=Path, help="keep the recorded runs in this directory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="probe-against-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        score_faults(given.cases, work)


if __name__ == "__main__":
    main()
