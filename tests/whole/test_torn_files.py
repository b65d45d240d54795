"""Tensor files that are cut off or rewritten while they are compared: a row, a sentence, and no wrong number."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs import preloaded
from support.programs.preloaded import PreloadedPopen
from support.runs.recorded import forward, tensor, write_run
from support.runs.results import read_jsonl
from support.sampling import sampled

COUNT = 100_000
"""Elements of a tensor, whose file is too large to be simply read."""
CALLS = 4
UNREADABLE = 2
"""The exit code where tensor files could not be read."""
TORN = 1
"""The call whose file changes."""
KINDS = ("npy", "pt", "packed")
PACKED = "tensors.safetensors"
IS_COMPILED = importlib.util.find_spec("probe_metrics._kernel") is not None
NUMPY = pytest.param("numpy", id="numpy")
COMPILED = pytest.param(
    "compiled", id="compiled", marks=pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled engine")
)

TEARING = '''
"""A plugin that changes a tensor file once it was opened, as another process might."""

import json
import os

from probe_core.model import measure

tear = json.loads(os.environ["TEAR"])
opened = measure.OpenPair._open_tensors


def change():
    size = os.path.getsize(tear["path"])
    if tear["how"] == "rewrite":
        with open(tear["path"], "r+b") as file:
            file.seek(size // 2)
            file.write(bytes(1000))
        return
    os.truncate(tear["path"], int(size * tear["left"]))
    if tear["how"] == "regrow":
        os.truncate(tear["path"], size)


def open_and_tear(self, *runs):
    reason = opened(self, *runs)
    if self.slots[0].value.data_name == tear["name"]:
        if tear["how"] == "handler":
            import faulthandler

            faulthandler.enable()
        change()
    return reason


measure.OpenPair._open_tensors = open_and_tear
'''


def name_of(call: int) -> str:
    return f"Torch.add.{call}.forward"


def write(directory: Path, kind: str, calls: int = CALLS) -> Path:
    """A run with a large output a call; its record file."""
    files = directory / "dump_tensor_data"
    files.mkdir(parents=True)
    suffix = ".npy" if kind == "npy" else ".pt"
    arrays = {
        f"{name_of(call)}.output.0": np.random.default_rng(call).standard_normal(COUNT).astype(np.float32)
        for call in range(calls)
    }
    if kind == "packed":
        header = {
            name: {"dtype": "F32", "shape": [COUNT], "data_offsets": [at * COUNT * 4, (at + 1) * COUNT * 4]}
            for at, name in enumerate(arrays)
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 64)
        data = b"".join(array.tobytes() for array in arrays.values())
        (files / PACKED).write_bytes(len(text).to_bytes(8, "little") + text + data)
    for name, array in arrays.items():
        if kind == "npy":
            np.save(files / f"{name}.npy", array)
        elif kind == "pt":
            torch = pytest.importorskip("torch")
            torch.save(torch.from_numpy(array), files / f"{name}.pt")
    data_ = {
        name_of(call): forward(output=[tensor([COUNT], data_name=f"{name_of(call)}.output.0{suffix}")])
        for call in range(calls)
    }
    path = write_run(directory, data_, task="tensor")
    if kind == "npy":
        path.write_text(path.read_text().replace("pytorch", "mindspore"))
    return path


def file_of(run: Path, kind: str) -> Path:
    name = PACKED if kind == "packed" else f"{name_of(TORN)}.output.0.{kind}"
    return run.parent / "dump_tensor_data" / name


def environment(engine: str) -> dict[str, str]:
    return {**os.environ, "PROBE_ENGINE": engine}


def compare(
    home: Path, target: Path, golden: Path, env: dict[str, str], *more: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Compare in a process of its own; how it ended, and the rows that it wrote."""
    command = [sys.executable, "-m", "probe_core.cli", "compare", str(target), str(golden)]
    command += ["-o", str(home / "out"), "--format", "jsonl", *more]
    done = preloaded.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, UNREADABLE), f"exit {done.returncode}: {done.stderr}"
    return done, read_jsonl(home / "out")


def tearing(home: Path, env: dict[str, str], **tear: Any) -> dict[str, str]:
    """The environment of a process with the plugin that changes a file."""
    site = home / "site"
    info = site / "probe_tearing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-tearing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[probe]\ntearing = probe_tearing\n")
    (site / "probe_tearing.py").write_text(TEARING)
    return {**env, "PYTHONPATH": str(site), "TEAR": json.dumps({"left": 0.5, "how": "cut", **tear})}


def is_right(row: dict[str, Any]) -> bool:
    return row["Cosine"] == pytest.approx(1) and row["MaxAbsErr"] == 0 and not row["Err_message"]


def is_unreadable(row: dict[str, Any]) -> bool:
    return row["Cosine"] == "unsupported" and "read failed" in row["Err_message"]


@pytest.mark.parametrize("engine", [COMPILED, NUMPY])
@pytest.mark.parametrize(
    "side, kind",
    sampled(
        itertools.product(["target", "golden"], KINDS),
        0,
        lambda case: case in zip(["target", "golden"] * 2, KINDS),
    ),
)
def test_cut_off_after_it_was_opened(tmp_path: Path, engine: str, kind: str, side: str) -> None:
    """The row says so and the others are as ever; what was read by then, and not mapped, is complete."""
    runs = {side: write(tmp_path / side, kind) for side in ("target", "golden")}
    suffix = "npy" if kind == "npy" else "pt"
    path, name = file_of(runs[side], kind), f"{name_of(TORN)}.output.0.{suffix}"
    env = tearing(tmp_path, environment(engine), path=str(path), name=name, left=0.3)
    done, rows = compare(tmp_path, runs["target"], runs["golden"], env)
    assert len(rows) == CALLS
    assert all(is_right(row) or is_unreadable(row) for row in rows)
    if engine == "compiled":
        assert is_unreadable(rows[TORN])
    assert f"{path.name} was cut off while it was read" in done.stderr or all(map(is_right, rows))
    assert done.returncode == (0 if all(map(is_right, rows)) else UNREADABLE)
    if kind == "packed":  # what lay behind is gone for later tensors as well
        assert is_unreadable(rows[-1])
    else:
        assert all(is_right(row) for number, row in enumerate(rows) if number != TORN)


@pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled engine, which guards mappings")
@pytest.mark.parametrize("how, left, says", [
    ("cut", 0.999, "was cut off"), ("cut", 0, "was cut off"), ("rewrite", 1, "was changed"),
    ("regrow", 0.5, "was changed"), ("handler", 0.5, "was cut off"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["npy", pytest.param("packed", marks=pytest.mark.slow)])
def test_other_ways_to_change(tmp_path: Path, kind: str, how: str, left: float, says: str) -> None:
    """Also where no page is missing, where all are, and where a plugin takes the signal for itself."""
    target, golden = write(tmp_path / "target", kind), write(tmp_path / "golden", kind)
    path, suffix = file_of(target, kind), "npy" if kind == "npy" else "pt"
    name = f"{name_of(TORN)}.output.0.{suffix}"
    env = tearing(tmp_path, environment("compiled"), path=str(path), name=name, how=how, left=left)
    if how == "handler":
        env["PYTHONFAULTHANDLER"] = "1"
    done, rows = compare(tmp_path, target, golden, env)
    assert is_unreadable(rows[TORN])
    assert f"{path.name} {says}" in done.stderr
    assert all(is_right(row) or is_unreadable(row) for row in rows)
    assert kind == "packed" or [is_right(row) for row in rows] == [call != TORN for call in range(CALLS)]


@pytest.mark.parametrize("engine", [COMPILED, NUMPY])
def test_processes_of_many_ranks(tmp_path: Path, engine: str) -> None:
    """A worker lives on as well, and the ranks beside it do not hear of it."""
    for side in ("target", "golden"):
        for rank in range(3):
            write(tmp_path / side / "step0" / f"rank{rank}", "npy")
    path = file_of(tmp_path / "target/step0/rank1/dump.json", "npy")
    when = TORN if engine == "compiled" else TORN - 1  # mapped by then, or about to be read
    name = f"{name_of(when)}.output.0.npy"
    env = tearing(tmp_path, environment(engine), path=str(path), name=name, left=0.3)
    command = [
        sys.executable,
        "-m",
        "probe_core.cli",
        "compare",
        str(tmp_path / "target"),
        str(tmp_path / "golden"),
    ]
    command += ["-o", str(tmp_path / "out"), "--format", "jsonl", "--executor", "processes", "--jobs", "2"]
    done = preloaded.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == UNREADABLE, done.stderr
    assert "was cut off while it was read" in done.stderr or "is cut off" in done.stderr
    rows = [
        json.loads(line)
        for result in (tmp_path / "out").rglob("*compare_result*rank*.jsonl")
        for line in result.read_text("utf-8").splitlines()
    ]
    assert len(rows) == 3 * CALLS
    unreadable = [row for row in rows if not is_right(row)]
    assert len(unreadable) >= 1 and all(map(is_unreadable, unreadable))


@pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled engine, which guards mappings")
@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be cut off here")
def test_other_bus_errors_end_the_process_as_ever(tmp_path: Path) -> None:
    """Only mappings of tensor files are guarded: a defect elsewhere must not go unseen."""
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    program = f"""
import faulthandler, mmap, os, signal, sys
import numpy as np
from probe_core.files import mapped
import probe_metrics.compiled
if "before" in sys.argv: faulthandler.enable()
own = os.open({str(path)!r}, os.O_RDWR)
with mapped.allow_mapping: guarded = mapped.MappedFile.from_descriptor(own, {str(path)!r})
assert guarded is not None
if "behind" in sys.argv: faulthandler.enable()
other = mmap.mmap(own, 0)
os.truncate(own, 0)
assert guarded[5000] == 0 and guarded.find_problem()
print("lived", flush=True)
os.kill(os.getpid(), signal.SIGBUS) if "raise" in sys.argv else other[5000]
"""
    for ways in ([], ["before"], ["raise"], ["before", "raise"], ["behind", "raise"]):
        path.write_bytes(bytes(1 << 20))
        done = preloaded.run(
            [sys.executable, "-c", program, *ways], capture_output=True, text=True, timeout=60, check=False
        )
        is_handled = "behind" in ways  # who takes the signal later, and maps no tensor file behind that
        assert (is_handled or done.stdout == "lived\n") and done.returncode == -7, (ways, done.stderr)
        assert ("Fatal Python error: Bus error" in done.stderr) == ("be" in "".join(ways)), (
            ways,
            done.stderr,
        )


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["npy", "packed"])
def test_cut_off_at_any_moment(tmp_path: Path, kind: str, rounds: int) -> None:
    """Whenever another process does it, each row is right or says that its file could not be read."""
    golden = write(tmp_path / "golden", kind, calls=24)
    chance = random.Random(kind)
    for round_ in range(rounds):
        home = tmp_path / str(round_)
        target = write(home / "target", kind, calls=24)
        files = sorted((target.parent / "dump_tensor_data").iterdir())
        engine = chance.choice(["compiled", "numpy"] if IS_COMPILED else ["numpy"])
        command = [sys.executable, "-m", "probe_core.cli", "compare", str(target), str(golden)]
        command += ["-o", str(home / "out"), "--format", "jsonl"]
        with PreloadedPopen(command, env=environment(engine), stderr=subprocess.PIPE, text=True) as process:
            time.sleep(chance.uniform(0.2, 0.9))
            for path in chance.sample(files, min(len(files), 8)):
                os.truncate(path, int(path.stat().st_size * chance.uniform(0.2, 1)))
            errors = process.communicate(timeout=120)[1]
        assert process.returncode in (0, UNREADABLE), (process.returncode, errors)
        rows = read_jsonl(home / "out")
        assert len(rows) == 24
        for row in rows:
            assert is_right(row) or row["Cosine"] == "unsupported", row
