"""Time and memory of ``probe checkpoint`` on two checkpoints of Megatron, next to msprobe if it is given.

Usage: python benchmarks/checkpoints.py [GIB] [DIRECTORY]

Makes two files of GIB gigabytes each (1 unless given) in DIRECTORY, by default a temporary one, with tensors
of bfloat16 and float32 that differ by noise. Files of an earlier run with the same size are used again. Prints
for each program the wall and CPU seconds and the memory of its largest process. The environment variable
MSPROBES lists msprobe executables, separated by colons. They import a package ``megatron``, for which an empty
one is made. Needs torch to make the files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS, COLUMNS = 4096, 2048
REPEATS = int(os.environ.get("REPEATS", "3"))


def make_checkpoint(directory: Path, size: int, noise: float) -> None:
    """Write a checkpoint of about ``size`` bytes; ``noise`` is added to all but each eighth tensor."""
    import torch

    generator = torch.Generator().manual_seed(0)
    base = torch.randn(ROWS, COLUMNS, generator=generator)
    model: dict[str, torch.Tensor] = {}
    total = 0
    while total < size:
        number = len(model)
        kind = torch.float32 if number % 4 == 3 else torch.bfloat16
        tensor = base * (1 + number / 64)
        if noise and number % 8:
            tensor = tensor + noise * base.roll(number)
        name = f"decoder.layers.{number // 2}.mlp.linear_fc{number % 2 + 1}.weight"
        model[name] = tensor.to(kind)
        total += model[name].nbytes
    rank = directory / "iter_0000001" / "mp_rank_00"
    rank.mkdir(parents=True)
    sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
    arguments = argparse.Namespace(num_layers=len(model), num_experts=None, **dict.fromkeys(sizes, 1))
    torch.save({"args": arguments, "model": model, "iteration": 1}, rank / "model_optim_rng.pt")
    (directory / "latest_checkpointed_iteration.txt").write_text("1")


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Run a command that may ask for a confirmation; return wall seconds, CPU seconds and MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdin is not None
    process.stdin.write(b"yes\n" * 10)  # it asks again for large files
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        sys.exit(f"{' '.join(command)} ended with status {status}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def run_all(workspace: Path, programs: dict[str, list[str]]) -> dict[str, tuple[float, ...]]:
    """Return the best wall and CPU seconds and the largest process of each program, measured in turn."""
    package = workspace / "packages" / "megatron"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    output = workspace / "out.json"
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
    for _ in range(REPEATS):
        for name, command in programs.items():
            environment = dict(os.environ)
            if name != "probe":
                environment["PYTHONPATH"] = str(package.parent)
            output.unlink(missing_ok=True)
            results[name].append(measure([*command, "-o", str(output)], environment))
    return {
        name: (min(r[0] for r in runs), min(r[1] for r in runs), max(r[2] for r in runs))
        for name, runs in results.items()
    }


def main() -> None:
    """Make the files, run the programs, and print a table."""
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * (1 << 30))
    workspace = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="checkpoints-"))
    sides = [str(workspace / f"{side}-{size}") for side in ("target", "golden")]
    try:
        for side, noise in zip(sides, (1e-3, 0.0)):
            if not Path(side).exists():
                subprocess.run([sys.executable, __file__, "--make", side, str(size), str(noise)], check=True)
        programs = {"probe": [str(Path(sys.executable).with_name("probe")), "checkpoint", *sides]}
        for program in filter(None, os.environ.get("MSPROBES", "").split(":")):
            programs[program] = [program, "-f", "pytorch", "config_check", "-c", *sides]
        results = run_all(workspace, programs)
        print("| program | wall s | CPU s | MiB | wall / probe's |\n|---|---|---|---|---|")
        for name, (wall, cpu, memory) in results.items():
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:.0f} | {wall / results['probe'][0]:.1f}x |")
    finally:
        if len(sys.argv) < 3:
            shutil.rmtree(workspace)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make_checkpoint(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
