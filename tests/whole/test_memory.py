"""Memory: whatever the size of the run, 300 MB plus twice the largest pair."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from support.runs.recorded import tensor

MIB = 1 << 20
PEAK = "import resource, sys; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"


def peak_of_comparing(target: Path, golden: Path, out: Path) -> int:
    """The largest resident set of a comparison, in MiB."""
    code = (
        "import sys; from probe_core.cli.main import run; "
        f"assert run(['compare', {str(target)!r}, {str(golden)!r}, '-o', {str(out)!r}, '--format', 'csv']) == 0; {PEAK}"
    )
    command = shlex.join([sys.executable, "-c", code])
    # a process begins with the peak of the one it is forked from, so a small one stands between
    done = subprocess.run(f"{command}; exit $?", shell=True, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def write(directory: Path, array: np.ndarray, calls: int, text: str = "") -> Path:
    """A run of ``calls`` calls that all gave out ``array``; one file, linked under every name."""
    data = {}
    files = directory / "dump_tensor_data"
    files.mkdir(parents=True)
    np.save(directory / "first.npy", array)
    for number in range(calls):
        name = f"Mint.a.{number}.forward.output.0.npy"
        (files / name).hardlink_to(directory / "first.npy")
        leaf = tensor(list(array.shape), data_name=name, a_field_of_a_later_version=text)
        data[f"Mint.a.{number}.forward"] = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
    head = {"task": "tensor", "level": "L1", "framework": "mindspore"}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}))
    return directory


def test_large_tensors_one_after_the_other(tmp_path: Path) -> None:
    """12 pairs of 2 x 32 MiB, transposed on one side so that they must be copied: not 768 MiB but a pair."""
    array = np.zeros((2048, 4096), np.float32)
    target = write(tmp_path / "t", np.asfortranarray(array), 12)
    golden = write(tmp_path / "g", array + 1, 12)
    assert peak_of_comparing(target, golden, tmp_path / "o") < 300 + 2 * 64


def test_many_records(tmp_path: Path) -> None:
    """A record file of 100 MB on each side is never in memory as a whole."""
    array = np.ones(4, np.float32)
    target = write(tmp_path / "t", array, 3000, "x" * 33_000)
    assert (target / "dump.json").stat().st_size > 95 * MIB
    assert peak_of_comparing(target, target, tmp_path / "o") < 300
