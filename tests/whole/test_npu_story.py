"""Our story: recorded on the CPU and on an NPU with one operator broken; the first suspect is that operator.

The NPU is the stand-in of ``standin_npu``, a device for tests; it lives in processes of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support import TESTS
from support.programs import preloaded
from support.runs.answer_files import read_answer


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("npu")

    def run(device: str, fault: str = "") -> Path:
        path = root / f"{device}{fault}"
        if not path.exists():
            command = [
                sys.executable,
                str(TESTS / "support/programs/npu_program.py"),
                device,
                str(path),
                fault,
            ]
            done = preloaded.run(
                command,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            assert not list(path.rglob("dump_error_info.log"))
        return path

    return run


def first_suspect(probe: Any, target: Path, golden: Path, out: Path) -> str:
    """Compare, and return the row that shows the first cause; empty if there is none and the runs agree."""
    assert probe("compare", target, golden, "-o", out) == 0, probe.err
    answer = read_answer(out)
    assert answer["verdict"] == ("DIVERGED" if answer["causes"] else "AGREE")
    if not answer["causes"]:
        return ""
    assert f"1. {answer['causes'][0]['op']}" in probe.out
    return str(answer["causes"][0]["row"])


def test_the_same_operators_are_no_suspects(probe: Any, record: Any, tmp_path: Path) -> None:
    assert first_suspect(probe, record("npu"), record("cpu"), tmp_path) == ""
    assert " 0 only in the target, 0 only in the golden" in probe.out


@pytest.mark.parametrize(
    ("fault", "suspect"),
    [
        ("gelu", "Functional.gelu.0.forward.output.0"),
        ("layer_norm", "Functional.layer_norm.0.forward.output.0"),
        ("gelu_backward", "Functional.gelu.0.backward.output.0"),
    ],
)
def test_the_first_suspect_is_the_broken_operator(
    probe: Any, record: Any, tmp_path: Path, fault: str, suspect: str
) -> None:
    assert first_suspect(probe, record("npu", fault), record("cpu"), tmp_path) == suspect


def test_products_in_bfloat16_are_a_lower_precision(probe: Any, record: Any, tmp_path: Path) -> None:
    assert probe("compare", record("npu", "addmm"), record("cpu"), "-o", tmp_path) == 0, probe.err
    assert read_answer(tmp_path)["causes"][0]["op"] == "conditions.precision"
    assert "matrix products of the target round their inputs to bfloat16" in probe.out


def test_recompute_is_seen_on_a_device_with_its_own_backward_thread(record: Any) -> None:
    for device in ("cpu", "npu"):
        records = json.loads((record(device) / "step0/rank/dump.json").read_text())["data"]
        assert records["Torch.sigmoid.1.forward"]["is_recompute"] is True
        assert "is_recompute" not in records["Torch.sigmoid.0.forward"]
