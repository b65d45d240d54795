"""Sent calls of mint: judged by what this device and torch give for exactly the sent inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import Tensor, mint
from probe_mindspore.precheck.runner import MindSporeRunner
from probe_online.judging import JudgeSetup, SentRows, run_sent_call
from probe_precheck.api import Call, RunnerOptions
from probe_recording.sending.body import SentTensor, encode_body

from probe_core.plugins.manager import Manager

SETUP = JudgeSetup("mindspore", RunnerOptions(Path("none/dump.json"), "cpu"), ("cpu",), "guide")
X = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)


def leaf(array: np.ndarray[Any, Any], name: str) -> dict[str, Any]:
    return {"type": "mindspore.Tensor", "dtype": "Float32", "shape": list(array.shape), "Max": 1.0, "Min": 0.0,
            "data_name": f"{name}.npy"}  # fmt: skip


def judged(name: str, output: np.ndarray[Any, Any], **keywords: Any) -> SentRows:
    """Return the rows of a call with the input X and an output that was sent."""
    fields = {
        "input_args": [leaf(X, "in")],
        "input_kwargs": {key: {"type": "int", "value": value} for key, value in keywords.items()},
        "output": [leaf(output, "out")],
    }
    sent = [SentTensor(key, "float32", one.shape, one.tobytes()) for key, one in (("in", X), ("out", output))]
    runner = MindSporeRunner()
    runner.open(SETUP.options)
    call = Call(name, 0, fields)
    body = memoryview(b"".join(map(bytes, encode_body(sent))))
    outcome, given = run_sent_call(runner, call, body)
    return SETUP.create_row_maker(Manager()).create_rows(call, outcome, given)


def test_what_mindspore_gives_passes_and_a_broken_operator_does_not() -> None:
    right = mint.nn.functional.softmax(Tensor(X), dim=-1).asnumpy()
    rows = judged("MintFunctional.softmax.0", right, dim=-1)
    assert (rows.parties, rows.status.value) == (3, "pass"), rows
    rows = judged("MintFunctional.softmax.0", right * np.float32(1.2), dim=-1)
    assert rows.status.value == "error", rows
    right = mint.nn.functional.relu(Tensor(X)).asnumpy()
    assert (found := judged("MintFunctional.relu.0", right)).parties == 2 and found.status.value == "pass"
    rows = judged("MintFunctional.relu.0", right + np.float32(0.1))
    assert rows.status.value == "error", rows


def test_random_calls_are_skipped_with_the_reason() -> None:
    rows = judged("MintFunctional.dropout.0", X)
    assert rows.status.value == "SKIP" and "random" in rows.message
