"""Benchmark of recording a training step: ``python record_steps.py [MODE …]``, MODE such as statistics-L1.

The step is forward, backward and AdamW(foreach) of a Llama on one thread: ``tiny`` has 4 layers, hidden size
128, sequence 64 and batch 4, and ``step-M`` has 8 layers, hidden size 512, sequence 256 and batch 4. A mode
that begins with ``step-M-`` is about the latter. For each mode a process runs steps without and with the
recorder in turn; the result is the ratio of their median CPU times, the median of three processes. ``import``
is the CPU time that importing the recorder adds to importing torch.

``step_phases`` or ``conditions`` in the place of a mode, or ``step-M-step-phases`` and ``step-M-conditions``, measures
what this part of the recorder adds to a step that is recorded with statistics: steps with and without it in
turn, in one process, at the levels L1 and mix.

``keep-L0`` measures ``probe_pytorch.watch``, which keeps the last ten steps in memory.

Environment variables:
    MSPROBE_PYTHON: A Python with mindstudio-probe 26.2.0 and transformers, to measure msprobe as well.
    RISK_LEVEL: The ``risk_level`` of both (default ALL).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODES = ("statistics-L1", "statistics-L0", "statistics-mix", "tensor-L1", "tensor-mix", "tensor-L1-files",
         "step_phases", "conditions", "keep-L0", "step-M-statistics-L1", "step-M-statistics-mix", "step-M-step-phases",
         "step-M-conditions", "step-M-keep-L0")  # fmt: skip
LARGE = "step-M-"
PARTS = ("step_phases", "conditions")
LEVELS = ("L1", "mix")
SIZES = {
    "tiny": {"hidden": 128, "layers": 4, "heads": 4, "inner": 344, "words": 1000, "length": 64},
    "step-M": {"hidden": 512, "layers": 8, "heads": 8, "inner": 1376, "words": 1000, "length": 256},
}
REPEATS, STEPS = 3, {"tiny": 9, "step-M": 4}
RISK_LEVEL = os.environ.get("RISK_LEVEL", "ALL")

STEPPER = """
import importlib, json, sys, time, warnings
warnings.simplefilter("ignore")
recorder, config, steps, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
import torch
begun = time.process_time()
PrecisionDebugger = importlib.import_module(recorder).PrecisionDebugger
imported = time.process_time() - begun
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_num_threads(1)
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=size["hidden"], intermediate_size=size["inner"],
    num_hidden_layers=size["layers"], num_attention_heads=size["heads"], num_key_value_heads=size["heads"],
    vocab_size=size["words"], max_position_embeddings=2 * size["length"]))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
words = torch.randint(0, size["words"], (4, size["length"]))
if size["keeps"]:
    import probe_pytorch
    place = json.load(open(config))["dump_path"]
    watch = probe_pytorch.watch(10, model, dump_path=place, level=size["keeps"])
else:
    debugger = PrecisionDebugger(config_path=config)
def step():
    model(input_ids=words, labels=words).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
def recorded():
    if size["keeps"]:
        watch.step(step)
        return
    debugger.start(model=model)
    step()
    debugger.stop()
    debugger.step()
def cost(run):
    begun = time.process_time()
    run()
    return time.process_time() - begun
for _ in range(3):
    step()
if size["part"]:  # recorded with and without it in turn
    import dataclasses
    inner = debugger._recorder
    captures, settings = inner.captures, inner.config
    def without():
        if size["part"] == "step_phases":
            inner.captures = [capture for capture in captures if capture is not inner._phases]
        else:
            inner.config = dataclasses.replace(settings, conditions=False)
        recorded()
        inner.captures, inner.config = captures, settings
    times = [[cost(run) for run in (step, recorded, without, recorded, without)] for _ in range(steps)][1:]
    pairs = [(bare, (a + b) / 2, (c + d) / 2) for bare, a, c, b, d in times]
    print(json.dumps({"bare": [a for a, _, _ in pairs], "recorded": [b for _, b, _ in pairs],
                      "after": [c for _, _, c in pairs], "import": imported}))
    sys.exit()
times = [(cost(step), cost(recorded), cost(step), cost(step)) for _ in range(steps)][1:]
# the third warms the caches that recording left cold; the fourth is a step while the recorder is stopped
print(json.dumps({"bare": [a for a, _, _, _ in times], "recorded": [b for _, b, _, _ in times],
                  "after": [d for _, _, _, d in times], "import": imported}))
"""


def measure(python: str, recorder: str, mode: str, folder: Path) -> tuple[float, float, float, float]:
    """Run one process.

    Returns:
        Milliseconds of a step without the recorder, the ratio of a recorded step, the ratio of a step
        afterwards, and seconds of import.
    """
    name = "step-M" if mode.startswith(LARGE) else "tiny"
    size: dict[str, object] = dict(SIZES[name])
    size["part"] = part = part_of(mode)
    task, level, *store = mode.removeprefix(LARGE).replace(part or "statistics", "statistics").split("-")
    size["keeps"] = level if task == "keep" else ""
    task = task.replace("keep", "statistics")
    run = folder / "run"
    config = folder / "config.json"
    section = {"scope": [], "list": [], "data_mode": ["all"]}
    config.write_text(
        json.dumps({"task": task, "level": level, "dump_path": str(run), "rank": [], "step": [],
                    "risk_level": RISK_LEVEL, "store": (store or ["packed"])[0], task: section})
    )  # fmt: skip
    command = [python, "-c", STEPPER, recorder, str(config), str(STEPS[name]), json.dumps(size)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{recorder} failed:\n{done.stderr[-2000:]}")
    times = json.loads(done.stdout.splitlines()[-1])
    bare, recorded, after = (statistics.median(times[name]) for name in ("bare", "recorded", "after"))
    return bare * 1e3, recorded / bare, after / bare, times["import"]


def part_of(mode: str) -> str:
    """Return the part of the recorder that a mode is about; empty for the whole recorder."""
    return next((part for part in PARTS if part in mode), "")


def measure_part(mode: str) -> None:
    """Print what a part of the recorder adds to a recorded step, as a share of a bare step."""
    for level in LEVELS:
        added, bares = [], []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                bare, ratio, without, _ = measure(sys.executable, "probe_pytorch", f"{mode}-{level}", Path(folder))
            added.append(ratio - without)
            bares.append(bare)
        print(f"{mode + '-' + level:22} probe   adds {statistics.median(added):6.3f} of "
              f"{statistics.median(bares):5.1f} ms CPU", flush=True)  # fmt: skip


def main() -> None:
    """Run the benchmark and print one line per mode and recorder."""
    recorders = [("probe", sys.executable, "probe_pytorch")]
    if msprobe := os.environ.get("MSPROBE_PYTHON"):
        recorders.append(("msprobe", msprobe, "msprobe.pytorch"))
    print(f"risk_level {RISK_LEVEL}; median of {REPEATS} processes")
    for mode in sys.argv[1:] or MODES:
        if part_of(mode) and not mode.endswith(LEVELS):
            measure_part(mode)
            continue
        for label, python, recorder in recorders:
            if label == "msprobe" and (part_of(mode) or mode.endswith("-files") or "keep-" in mode):
                continue
            results = []
            for _ in range(REPEATS):
                with tempfile.TemporaryDirectory() as folder:
                    results.append(measure(python, recorder, mode, Path(folder)))
            bare, ratio, after, imported = map(statistics.median, zip(*results))
            print(f"{mode:22} {label:7} {ratio:6.2f}x of {bare:5.1f} ms CPU; not recording {after:4.2f}x; "
                  f"import {imported:4.2f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
