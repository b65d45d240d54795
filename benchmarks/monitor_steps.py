"""Benchmark of TrainerMon: ``python monitor_steps.py [MODE …]``.

The step is that of ``record_steps.py``: forward, backward and AdamW(foreach) of a Llama on one thread, in the
sizes ``tiny`` and ``step-M``. A mode is a size and what is monitored, such as ``tiny-wg``: ``wg`` for the
norms of weight gradients before and after their reduction, ``wg-all`` for all operations on them, ``mv`` for
the moments, ``param`` for parameters, ``xy`` for activations and their gradients.

For each mode a process trains two equal models, one of them monitored, in turn. The result is the ratio of
the median CPU times of their steps, the median of three processes; files are included.

Environment variables:
    MSPROBE_PYTHON: A Python with mindstudio-probe 8.3.3 and transformers, to measure msprobe as well.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = {
    "tiny": {"hidden": 128, "layers": 4, "heads": 4, "inner": 344, "words": 1000, "length": 64},
    "step-M": {"hidden": 512, "layers": 8, "heads": 8, "inner": 1376, "words": 1000, "length": 256},
}
STEPS = {"tiny": 15, "step-M": 6}
MONITORS = {
    "wg": {"wg_distribution": True},
    "wg-all": {"wg_distribution": True, "ops": ["norm", "min", "max", "mean", "zeros", "nans"]},
    "mv": {"mv_distribution": True},
    "param": {"param_distribution": True},
    "xy": {"xy_distribution": True},
}
MODES = tuple(f"{size}-{name}" for size in SIZES for name in MONITORS)
REPEATS = 3

STEPPER = """
import importlib, json, sys, time, warnings
warnings.simplefilter("ignore")
package, config, steps, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
import torch
from transformers import LlamaConfig, LlamaForCausalLM
TrainerMon = importlib.import_module(package).TrainerMon
torch.set_num_threads(1)
words = torch.randint(0, size["words"], (4, size["length"]))
def training():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=size["hidden"], intermediate_size=size["inner"],
        num_hidden_layers=size["layers"], num_attention_heads=size["heads"],
        num_key_value_heads=size["heads"], vocab_size=size["words"],
        max_position_embeddings=2 * size["length"]))
    kind = type("AdamW", (torch.optim.AdamW,), {})  # msprobe replaces the method of the class
    return model, kind(model.parameters(), lr=1e-3, foreach=True)
def step(model, optimizer):
    model(input_ids=words, labels=words).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
def cost(model, optimizer):
    begun = time.process_time()
    step(model, optimizer)
    return time.process_time() - begun
bare, monitored = training(), training()
TrainerMon(config, params_have_main_grad=False).set_monitor(
    monitored[0], grad_acc_steps=1, optimizer=monitored[1])
for pair in (bare, monitored) * 2:
    step(*pair)
times = [(cost(*bare), cost(*monitored), cost(*monitored), cost(*bare)) for _ in range(steps)]
print(json.dumps({"bare": [a for t in times for a in (t[0], t[3])],
                  "monitored": [a for t in times for a in t[1:3]]}))
"""


def measure(python: str, package: str, mode: str) -> tuple[float, float]:
    """Run one process; return milliseconds of a step without the monitor, and the ratio with it."""
    size = next(name for name in SIZES if mode.startswith(f"{name}-"))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps({"targets": {}, **MONITORS[mode.removeprefix(f"{size}-")]}))
        command = [python, "-c", STEPPER, package, str(config), str(STEPS[size]), json.dumps(SIZES[size])]
        environment = {**os.environ, "MONITOR_OUTPUT_DIR": str(Path(folder) / "out")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{package} failed:\n{done.stderr[-2000:]}")
    times = json.loads(done.stdout.splitlines()[-1])
    bare, monitored = (statistics.median(times[name]) for name in ("bare", "monitored"))
    return bare * 1e3, monitored / bare


def main() -> None:
    """Print a line for each mode and tool."""
    tools = [("probe", sys.executable, "probe_check")]
    if python := os.environ.get("MSPROBE_PYTHON"):
        tools.append(("msprobe", python, "msprobe.pytorch"))
    for mode in sys.argv[1:] or MODES:
        for tool, python, package in tools:
            results = [measure(python, package, mode) for _ in range(REPEATS)]
            bare, ratio = (statistics.median(column) for column in zip(*results))
            print(f"{mode:15} {tool:8} bare {bare:8.1f} ms  ratio {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
