"""Benchmark of checking 500 calls with one and with two workers: ``python check_calls.py [CALLS]``.

The calls are those of a transformer of width WIDTH, forward and backward, with random inputs made from
statistics. The two commands run in turn. One line shows the median wall times and their ratio.

Environment variable: REPEATS, the number of runs of each command (default 3).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from compare_runs import PROBE, REPEATS, measure

CALLS = 500
WIDTH, LENGTH, HEADS = 512, 128, 8


def tensor(*shape: int, grad: bool = True) -> dict[str, Any]:
    """Return the leaf of a tensor of values from -1 to 1."""
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape), "Max": 1.0, "Min": -1.0,
            "Mean": 0.0, "Norm": 1.0, "requires_grad": grad}  # fmt: skip


def number(value: float) -> dict[str, Any]:
    """Return the leaf of a number."""
    return {"type": type(value).__name__, "value": value}


def layer() -> list[tuple[str, list[Any], dict[str, Any]]]:
    """Return name, arguments and output of each call of one layer."""
    x, wide = tensor(1, LENGTH, WIDTH), tensor(1, LENGTH, 4 * WIDTH)
    heads, scores = tensor(1, HEADS, LENGTH, WIDTH // HEADS), tensor(1, HEADS, LENGTH, LENGTH)
    square, vector = tensor(WIDTH, WIDTH), tensor(WIDTH)
    shape = [number(WIDTH)]
    return [
        ("Functional.layer_norm", [x, shape, vector, vector, number(1e-5)], x),
        ("Functional.linear", [x, square, vector], x),
        ("Functional.linear", [x, square, vector], x),
        ("Torch.matmul", [heads, tensor(1, HEADS, WIDTH // HEADS, LENGTH)], scores),
        ("Tensor.__mul__", [scores, number(0.125)], scores),
        ("Functional.softmax", [scores, number(-1)], scores),
        ("Torch.matmul", [scores, heads], heads),
        ("Tensor.__add__", [x, x], x),
        ("Functional.linear", [x, tensor(4 * WIDTH, WIDTH), tensor(4 * WIDTH)], wide),
        ("Functional.gelu", [wide], wide),
        ("Functional.linear", [wide, tensor(WIDTH, 4 * WIDTH), vector], x),
        ("Tensor.__add__", [x, x], x),
    ]


def write_run(path: Path, calls: int) -> None:
    """Write a ``dump.json`` with ``calls`` calls."""
    data: dict[str, Any] = {}
    calls_of_layer = layer()
    for i in range(calls):
        name, arguments, output = calls_of_layer[i % len(calls_of_layer)]
        key = f"{name}.{i}"
        data[f"{key}.forward"] = {"input_args": arguments, "input_kwargs": {}, "output": [output]}
        data[f"{key}.backward"] = {"input": [output], "output": [arguments[0]]}
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**head, "data": data}))


def main() -> None:
    """Run the benchmark and print its result."""
    calls = int(sys.argv[1]) if sys.argv[1:] else CALLS
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        write_run(home / "dump.json", calls)
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(REPEATS):
            for workers, walls in times.items():
                command = [*PROBE, "multi_run_ut", "-n", str(workers), "-d", "cpu", "-api_info",
                           str(home / "dump.json"), "-o", str(home / "out")]  # fmt: skip
                walls.append(measure(command).wall)
    single, double = (statistics.median(times[workers]) for workers in (1, 2))
    ratio = single / double
    print(f"{calls} calls: 1 worker {single:.1f} s, 2 workers {double:.1f} s, {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
