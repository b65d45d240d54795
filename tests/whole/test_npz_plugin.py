"""A framework in an afternoon: runs of JAX in .npz files, read by a plugin of a stranger's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs import preloaded
from support.runs.npz import OTHER, PLUGIN, SAME, TURNED, X, save
from support.runs.recorded import forward, tensor, write_run
from support.runs.results import read_jsonl

Probe = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """``probe`` in a process of its own, with the plugin installed."""
    home = tmp_path_factory.mktemp("npz")
    shutil.copytree(PLUGIN, home / "source", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", home / "site", home / "source"], check=True)  # fmt: skip

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(home / "site")}
        command = [sys.executable, "-m", "probe_core.cli", *map(str, arguments)]
        return preloaded.run(command, capture_output=True, text=True, env=environment)

    return run


def save_with_torch(directory: Path) -> Path:
    """Save OTHER as the recorder of PyTorch does."""
    names = iter(("Torch.exp.0", "Torch.matmul.0", "Torch.exp.1"))
    data = {}
    (directory / "dump_tensor_data").mkdir(parents=True)
    for name, (_, inputs, outputs) in zip(names, OTHER):
        leaves: list[list[dict[str, Any]]] = [[], []]
        for side, arrays, found in zip(("input", "output"), (inputs, outputs), leaves):
            for place, array in enumerate(arrays):
                file = f"{name}.forward.{side}.{place}.pt"
                torch.save(torch.from_numpy(array.copy()), directory / "dump_tensor_data" / file)
                found.append(tensor(data_name=file))
        data[f"{name}.forward"] = forward(*leaves[0], output=leaves[1])
    write_run(directory, data, task="tensor")
    return directory


def cosines(out: Path) -> dict[str, float]:
    return {row["NPU Name"]: row["Cosine"] for row in read_jsonl(out)}


def test_two_runs_are_compared(probe: Probe, tmp_path: Path) -> None:
    target, golden = save(tmp_path / "t", OTHER), save(tmp_path / "g", SAME)
    found = probe("compare", target, golden, "-o", tmp_path / "out", "--format", "jsonl")
    assert found.returncode == 0, found.stderr
    half = float(X @ (X + TURNED)) / 25 / np.sqrt(2)
    assert cosines(tmp_path / "out") == pytest.approx(
        {
            "Jax.exp.0.forward.input.0": 1,
            "Jax.exp.0.forward.output.0": 1,
            "Jax.dot.0.forward.input.0": 1,
            "Jax.dot.0.forward.input.1": 1,
            "Jax.dot.0.forward.output.0": 0,
            "Jax.exp.1.forward.input.0": 1,
            "Jax.exp.1.forward.output.0": half,
        },
        abs=1e-6,
    )
    assert "Jax.dot.0.forward" in found.stdout


def test_a_run_is_compared_with_one_of_pytorch(probe: Probe, tmp_path: Path) -> None:
    target, golden = save(tmp_path / "t", SAME), save_with_torch(tmp_path / "g")
    found = probe("compare", target, golden, "-o", tmp_path / "out", "--format", "jsonl")
    assert found.returncode == 0, found.stderr
    assert cosines(tmp_path / "out")["Jax.dot.0.forward.output.0"] == pytest.approx(0, abs=1e-6)
    partners = {row["NPU Name"]: row["Bench Name"] for row in read_jsonl(tmp_path / "out")}
    assert partners["Jax.dot.0.forward.input.1"] == "Torch.matmul.0.forward.input.1"
    assert partners["Jax.exp.1.forward.output.0"] == "Torch.exp.1.forward.output.0"


def test_steps_and_ranks_pair_by_their_numbers(probe: Probe, tmp_path: Path) -> None:
    for step in ("step0", "step3"):
        for rank in ("rank0", "rank1"):
            save(tmp_path / "t" / step / rank, OTHER if (step, rank) == ("step3", "rank1") else SAME)
            save(tmp_path / "g" / step / rank, SAME)
    out = tmp_path / "out"
    found = probe("compare", tmp_path / "t", tmp_path / "g", "-o", out, "--format", "jsonl")
    assert found.returncode == 0, found.stderr
    for path in out.rglob("*compare_result*.jsonl"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        differs = any(row["Cosine"] < 0.9 for row in rows)
        assert differs == (path.parent.name == "step3" and "rank1" in path.name), path
    assert len(list(out.rglob("*compare_result*.jsonl"))) == 4


def test_what_is_missing_or_damaged_is_said(probe: Probe, tmp_path: Path) -> None:
    target, golden = save(tmp_path / "t", SAME), save(tmp_path / "g", SAME)
    (golden / "manifest.json").write_text('{"framework": "jax"}')
    found = probe("compare", target, golden, "-o", tmp_path / "out")
    assert found.returncode == 2 and "manifest.json cannot be read: KeyError('calls')" in found.stderr
    (golden / "manifest.json").unlink()
    found = probe("compare", target, golden, "-o", tmp_path / "out")
    assert found.returncode == 2 and "no dump.json or debug.json or .pkl or manifest.json" in found.stderr


def test_a_file_of_call_stacks_is_refused(probe: Probe, tmp_path: Path) -> None:
    """The core reads none for a format that it does not know."""
    paths = {"npu_path": save(tmp_path / "t", SAME), "bench_path": save(tmp_path / "g", SAME),
             "stack_path": tmp_path / "stack.json"}  # fmt: skip
    paths["stack_path"].write_text("{}")
    file = tmp_path / "compare.json"
    file.write_text(json.dumps({name: str(path) for name, path in paths.items()} | {"is_print_compare_log": True}))
    found = probe("compare", "-i", file, "-o", tmp_path / "out", "-s")
    assert found.returncode == 2 and "has no file of call stacks" in found.stderr, found.stderr
    found = probe("compare", "-i", file, "-o", tmp_path / "out")
    assert found.returncode == 0, found.stderr


def test_the_precheck_says_that_it_cannot_make_the_calls_again(probe: Probe, tmp_path: Path) -> None:
    path = save(tmp_path / "t", SAME) / "manifest.json"
    found = probe("run_ut", "-api_info", path, "-o", tmp_path / "out")
    assert found.returncode == 2, found.stderr
    assert "does not contain the arguments of its calls" in found.stderr


def test_the_plugin_takes_under_150_lines() -> None:
    files = [path for path in PLUGIN.rglob("*") if path.suffix in (".py", ".toml") and "build" not in path.parts]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) < 150
