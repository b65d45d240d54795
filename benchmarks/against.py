"""Benchmark of recording against a golden: ``python against.py PART [--work DIRECTORY] [CASE …]``.

``faults`` records each case of the benchmark ``faults`` against its golden, once with statistics and once with
checksums. A fault is caught if the tensors of its cause are on disk. The cause is the one that names the fault, in a
comparison of full dumps. A control, whose values differ by rounding, must keep no tensor with statistics.
``repeats`` records a training step 100 times against itself, in both modes, and once with an inserted call. ``size``
compares the size of the tensors on disk with that of a full dump, for a fault in the first layer of a Llama of 8
layers with hidden size 512, sequence 256 and batch 4. ``cost`` measures the CPU time of a step of this Llama, and of
one with 4 layers and hidden size 128, that agrees with its golden, as a multiple of a step that is recorded with
checksums; with statistics likewise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
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
REPEATS, PROCESSES = 100, 3
STEPPER = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
part, place, summary, hidden, layers, length, count = sys.argv[1:4] + [int(text) for text in sys.argv[4:]]
import torch
from probe_pytorch import PrecisionDebugger
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_num_threads(1)
def make_debugger(name, task="statistics", golden=None):
    section = {"summary_mode": summary} | ({"bench_path": golden} if golden else {})
    section = {} if task == "tensor" else section
    with open(f"{place}/{name}.json", "w") as file:
        json.dump({"task": task, "dump_path": f"{place}/{name}", "level": "mix", task: section}, file)
    PrecisionDebugger._instance = None
    return PrecisionDebugger(config_path=f"{place}/{name}.json")
def run(debugger, steps, fault=1.0, inserted=False):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=hidden, intermediate_size=hidden * 43 // 16,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=1000, max_position_embeddings=2 * length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    words = torch.randint(0, 1000, (4, length))
    if fault != 1.0:
        model.model.layers[0].mlp.register_forward_hook(lambda module, args, output: output * fault)
    if inserted:
        model.model.layers[0].mlp.register_forward_hook(lambda module, args, output: (output + output, output)[1])
    times = []
    for _ in range(steps):
        begun = time.process_time()
        debugger.start(model=model)
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
        times.append(time.process_time() - begun)
    debugger._recorder.finish()
    return times[1:]
if part == "repeats":
    run(make_debugger("golden"), 1)
    for number in range(count):
        run(make_debugger(f"run{number}", golden=f"{place}/golden"), 1)
    run(make_debugger("inserted", golden=f"{place}/golden"), 1, inserted=True)
elif part == "size":
    run(make_debugger("golden"), 1)
    run(make_debugger("full", "tensor"), 1, fault=1.01)
    run(make_debugger("against", golden=f"{place}/golden"), 1, fault=1.01)
else:
    golden = f"{place}/golden" if part == "against" else None
    print(json.dumps(run(make_debugger(part, golden=golden), count)))
"""
SIZES = {"small": (64, 1, 16, 9), "tiny": (128, 4, 64, 9), "step-M": (512, 8, 256, 4)}
"""Hidden size, layers, length of sequences, and number of steps of a measurement."""


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


def run_stepper(part: str, place: Path, summary: str, size: str, count: int = 0) -> str:
    """Run a part in a process of its own; return what it prints."""
    *shape, steps = SIZES[size]
    command = [sys.executable, "-c", STEPPER, part, str(place), summary, *map(str, shape), str(count or steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return done.stdout


def score_repeats() -> None:
    """Print how many equal repetitions keep tensors."""
    for summary in SUMMARIES:
        with tempfile.TemporaryDirectory(prefix="probe-against-") as place:
            run_stepper("repeats", Path(place), summary, "small", REPEATS)
            keeping = [run for run in Path(place).glob("run*/") if list_kept(run)]
            inserted = [cause.op for cause in list_kept(Path(place) / "inserted")]
            print(f"{summary:10} {len(keeping)} of {REPEATS} repetitions keep tensors; inserted call: {inserted}")


def measure_size() -> None:
    """Print the bytes of the tensors that are kept, and of a full dump."""
    for summary in SUMMARIES:
        with tempfile.TemporaryDirectory(prefix="probe-against-") as place:
            run_stepper("size", Path(place), summary, "step-M")
            full, kept = (
                sum(file.stat().st_size for file in Path(place, run).rglob("tensors.safetensors"))
                for run in ("full", "against")
            )
            calls = [cause.op for cause in list_kept(Path(place) / "against")]
            share = f", 1/{full / kept:.0f}" if kept else ""
            print(f"{summary:10} {kept:,} of {full:,} bytes{share}: {calls}")


def measure_cost() -> None:
    """Print the CPU time of a step that is compared, as a multiple of one that is recorded in the same mode.

    Each is the shortest of several steps, because other programs on the machine only make steps longer.
    """
    for size in ("tiny", "step-M"):
        for summary in SUMMARIES:
            times: dict[str, list[float]] = {"golden": [], "against": []}
            with tempfile.TemporaryDirectory(prefix="probe-against-") as place:
                for part in ("golden", "against") * PROCESSES:
                    times[part] += json.loads(run_stepper(part, Path(place), summary, size).splitlines()[-1])
            plain, against = (min(times[part]) for part in ("golden", "against"))
            print(f"{size:7} {summary:10} {against / plain:.2f}x of {plain * 1e3:.0f} ms", flush=True)


def main() -> None:
    """Run the parts of the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description="Score recording against a golden.")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("cases", nargs="*", help="names of cases; all if none is given")
    parser.add_argument("--work", type=Path, help="keep the recorded runs in this directory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="probe-against-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        parts = {"repeats": score_repeats, "size": measure_size, "cost": measure_cost}
        if given.part in parts:
            parts[given.part]()
        else:
            score_faults(given.cases, work)


if __name__ == "__main__":
    main()
