"""``probe explain``: wrong kernels below the API are found in one run, and healthy nets give no finding."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_explain import run as running
from probe_pytorch.demo import unpack
from probe_pytorch.precheck.replay import PARTIAL_GRADIENT
from support.probe import Probe
from support.runs.explained import explanation, recorded_net, recorded_program
from support.sampling import sampled
from torch.nn import functional as F

FAULTS = {
    "softmax": ("float32", "Functional.softmax.", 20),
    "gelu": ("float32", "Functional.gelu.", 50),
    "layer_norm": ("float32", "Functional.layer_norm.", 20),
    "matmul": ("bfloat16", "Functional.linear.", 1),
}
HEALTHY = [(net, dtype) for net in ("gpt", "conv") for dtype in ("float32", "autocast", "bfloat16")]


@pytest.mark.parametrize("fault", sampled(FAULTS, 0, ("gelu", "matmul").__contains__))
def test_a_wrong_kernel_is_the_cause_with_its_line_of_code(fault: str, probe: Probe, tmp_path: Path) -> None:
    dtype, api, least = FAULTS[fault]
    run = recorded_net(tmp_path / "run", "gpt", dtype, fault)
    assert probe("explain", run, "-o", tmp_path / "out", "--fail-on", "suspect") == 1
    assert probe.out.startswith(f"ERROR INTRODUCED: {api}")
    assert "kernels.py, line" in probe.out.splitlines()[0]
    found = explanation(tmp_path / "out")
    assert found["verdict"] == "ERROR INTRODUCED" and probe.out.splitlines()[0] == found["sentence"]
    assert all(cause["op"].startswith(api) for cause in found["causes"]), found["causes"]
    cause = found["causes"][0]
    assert least < cause["evidence"]["times"] < 1e6
    assert cause["op"].endswith("backward" if fault == "gelu" else "forward")
    assert (cause["module"] and cause["module"][-1].startswith("Module.Gpt")) or "Module." in cause["module"][0]
    assert "kernels.py, line" in cause["where"]


@pytest.mark.parametrize(
    ("net", "dtype"), sampled(HEALTHY, 0, (("gpt", "autocast"), ("conv", "bfloat16")).__contains__)
)
def test_healthy_nets_are_within_rounding(net: str, dtype: str, probe: Probe, tmp_path: Path) -> None:
    run = recorded_net(tmp_path / "run", net, dtype)
    assert probe("explain", run, "-o", tmp_path / "out", "--fail-on", "suspect") == 0
    found = explanation(tmp_path / "out")
    assert found["verdict"] == "WITHIN ROUNDING" and not found["causes"]
    coverage = found["coverage"]
    assert coverage["judged"] >= 0.9 * coverage["recorded"] > 50
    assert coverage["judged"] + sum(one["count"] for one in coverage["not_judged"]) == coverage["recorded"]


# -- one small run ------------------------------------------------------------------------------------


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def program() -> None:
    torch.manual_seed(0)
    x = F.linear(drawn(4, 8), drawn(6, 8))
    F.dropout(x, 0.5)
    torch.argmax(x)
    F.softmax(x, -1).sum().backward()


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return recorded_program(tmp_path / "run", program)


def spoil(dump: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change a recorded tensor."""
    file = dump.parent / "dump_tensor_data" / f"{name}.pt"
    torch.save(change(torch.load(file)), file)


def rows(directory: Path) -> dict[str, dict[str, str]]:
    """The rows of the table by record and result."""
    (file,) = directory.glob("explain_*.csv")
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return {f"{row['Record']}.{row['Result']}".rstrip("."): row for row in csv.DictReader(stream)}


def test_the_table_has_a_row_for_every_result_and_every_reason(dump: Path, probe: Probe, tmp_path: Path) -> None:
    assert probe("explain", dump, "-o", tmp_path / "out") == 0
    found = rows(tmp_path / "out")
    row = found["Functional.linear.0.forward.output.0"]
    assert row["Status"] == "within rounding" and row["Dtype"] == "torch.float32" and row["Shape"] == "[4, 6]"
    assert 0 < float(row["Error"]) <= float(row["Largest error"]) and 0 < float(row["Times"]) < 1
    assert found["Functional.dropout.0.forward"]["Reason"] == "draws random numbers"
    assert "no floating-point" in found["Torch.argmax.0.forward"]["Reason"]
    assert "not computed: 1 record: draws random numbers; the first is Functional.dropout.0.forward" in probe.out


def test_a_recorded_value_that_the_inputs_do_not_give(dump: Path, probe: Probe, tmp_path: Path) -> None:
    spoil(dump, "Functional.softmax.0.forward.output.0", lambda tensor: tensor * 1.001)
    assert probe("explain", dump, "-o", tmp_path / "out", "--only", "Functional.softmax") == 0
    found = explanation(tmp_path / "out")
    (cause,) = found["causes"]
    assert cause["op"] == "Functional.softmax.0.forward" and 3e-4 < cause["evidence"]["error"] < 1.1e-3
    assert set(rows(tmp_path / "out")) == {
        "Functional.softmax.0.forward.output.0",
        "Functional.softmax.0.backward.output.0",
    }


def test_nan_where_the_inputs_give_numbers(dump: Path, probe: Probe, tmp_path: Path) -> None:
    spoil(
        dump,
        "Functional.linear.0.forward.output.0",
        lambda tensor: tensor.index_fill(0, torch.tensor([1]), float("nan")),
    )
    assert probe("explain", dump, "-o", tmp_path / "out", "--only", "Functional.linear.0") == 0
    assert "returns other values than its recorded inputs give (output.0: 6 elements are nan or inf" in probe.out
    assert explanation(tmp_path / "out")["causes"][0]["evidence"]["nan_or_inf_on_one_side"] == 6


def test_a_gradient_within_a_call_of_a_dump_by_msprobe_accuses_nobody(probe: Probe, tmp_path: Path) -> None:
    """Msprobe recorded the gradient between log_softmax and nll_loss as that of cross_entropy."""
    unpack(tmp_path)
    assert probe("explain", tmp_path / "golden", "-o", tmp_path / "out") == 0
    answer = explanation(tmp_path / "out")
    assert answer["verdict"] == "WITHIN ROUNDING"
    first = {one["reason"]: one["first"] for one in answer["coverage"]["not_judged"]}
    assert first[PARTIAL_GRADIENT] == "Functional.cross_entropy.0.backward"


def test_without_tensors_nothing_can_be_told(dump: Path, probe: Probe, tmp_path: Path) -> None:
    for file in (dump.parent / "dump_tensor_data").glob("*.pt"):
        file.unlink()
    assert probe("explain", dump, "-o", tmp_path / "out") == 0
    assert probe.out.startswith("CANNOT TELL: none of")
    assert probe("explain", dump, "-o", tmp_path / "again", "--fail-on", "suspect") == 1


def attention_of_alike_tokens() -> None:
    """Queries, keys and values that are nearly the same for all tokens, as in a net at the start of training."""
    torch.manual_seed(3)
    tensors = [torch.randn(1, 4, 1, 64) + 0.01 * torch.randn(1, 4, 256, 64) for _ in range(3)]
    query, key, value = (tensor.requires_grad_() for tensor in tensors)
    output = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    (output * torch.randn(1, 4, 256, 64)).sum().backward()


def test_attention_may_be_off_by_what_its_rounded_output_moves(probe: Probe, tmp_path: Path) -> None:
    """Its backward reads the output that the forward rounded, and cancels it."""
    dump = recorded_program(tmp_path / "run", attention_of_alike_tokens)
    assert probe("explain", dump, "-o", tmp_path / "out") == 0
    assert probe.out.startswith("WITHIN ROUNDING")
    error = float(rows(tmp_path / "out")["Functional.scaled_dot_product_attention.0.backward.output.0"]["Error"])
    assert error > 1e-5  # more than 64 roundings of float32
    (note,) = explanation(tmp_path / "out")["notes"]
    assert note.startswith("fragile, not wrong: ") and "scaled_dot_product_attention.0.backward" in note
    assert note in probe.out
    spoil(dump, "Functional.scaled_dot_product_attention.0.backward.output.1", lambda tensor: tensor * 1.001)
    assert probe("explain", dump, "-o", tmp_path / "wrong") == 0
    (cause,) = explanation(tmp_path / "wrong")["causes"]
    assert cause["op"] == "Functional.scaled_dot_product_attention.0.backward"


def test_incomplete_asks_for_every_record(dump: Path, probe: Probe, tmp_path: Path) -> None:
    assert probe("explain", dump, "-o", tmp_path / "out", "--fail-on", "incomplete") == 1
    only = ("--only", "Functional.linear")
    assert probe("explain", dump, "-o", tmp_path / "out", "--fail-on", "incomplete", *only) == 0


def test_mistakes(dump: Path, probe: Probe, tmp_path: Path) -> None:
    assert probe("explain", tmp_path / "nowhere") == 2
    assert probe("explain", dump, "-o", tmp_path / "out", "--only", "Functional.linaer") == 2
    assert "Functional.linear" in probe.err
    assert probe("explain", dump, "-o", tmp_path / "out", "--rank", "3") == 2
    text = dump.read_text()
    dump.write_text(text.replace('"framework": "pytorch"', '"framework": "mindspore"'))
    assert probe("explain", dump, "-o", tmp_path / "out") == 2
    assert "Calls of mindspore cannot be explained: its runner does not compute recorded calls" in probe.err
    without_tensors = re.sub(r', "data_name": "[^"]*"', "", text)
    dump.write_text(without_tensors.replace('"task": "tensor"', '"task": "statistics"'))
    assert probe("explain", dump, "-o", tmp_path / "out") == 2
    assert 'Record the run with "task": "tensor"' in probe.err


def test_ctrl_c_leaves_what_is_finished(
    dump: Path, probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_then_interrupt(setup: Any, jobs: Any, *_: Any, **__: Any) -> Any:
        run = setup(0)
        yield jobs[0], run(jobs[0].payload)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "supervise", one_then_interrupt)
    assert probe("explain", dump, "-o", tmp_path / "out") == 130
    found = explanation(tmp_path / "out")
    assert found["verdict"] == "CANNOT TELL" and found["interrupted"]
    assert found["coverage"]["not_reached"] >= 3 and probe.out.startswith("CANNOT TELL: it was interrupted")
    assert "Functional.linear.0.forward.output.0" in rows(tmp_path / "out")


def test_a_lost_call_is_named(dump: Path, probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe_precheck.supervisor import LostJob

    def lost(setup: Any, jobs: Any, *_: Any, **__: Any) -> Any:
        for job in jobs:
            yield job, LostJob("its process was killed (signal 9), often because of a lack of memory")

    monkeypatch.setattr(running, "supervise", lost)
    assert probe("explain", dump, "-o", tmp_path / "out", "--only", "Functional.linear") == 3
    assert "killed (signal 9)" in probe.out


def test_compare_explains_its_target(dump: Path, probe: Probe, tmp_path: Path) -> None:
    golden = recorded_program(tmp_path / "golden", program)
    spoil(dump, "Functional.softmax.0.forward.output.0", lambda tensor: tensor * 1.001)
    assert probe("compare", dump, golden, "-o", tmp_path / "out", "--format", "csv", "--explain") == 0
    assert "ERROR INTRODUCED: Functional.softmax.0.forward" in probe.out
    cause = explanation(tmp_path / "out")["causes"][0]
    assert cause["op"] == "Functional.softmax.0.forward"
    assert probe("compare", golden, dump, "-o", tmp_path / "other", "--format", "csv", "--explain") == 0
    assert explanation(tmp_path / "other")["verdict"] == "WITHIN ROUNDING"
