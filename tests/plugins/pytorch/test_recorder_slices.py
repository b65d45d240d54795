"""Recordings that ``slice``, ``request_id`` and ``rank_id`` limit to a part of tensors or to a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs.recording import Recording, recording
from torch.nn import functional as F

import probe_core
from probe_core.errors import UserError

X = torch.arange(24, dtype=torch.float32).reshape(6, 4)


def output_of(found: Recording, step: int = 0, name: str = "Functional.relu.0.forward") -> dict[str, Any]:
    return found.records(step)[name]["output"][0]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("summary", ["statistics", "md5"])
def test_slice_limits_statistics_data_and_checksum(tmp_path: Path, task: str, summary: str) -> None:
    section = {"slice": [{"dim": 0, "size": 6, "begin": 1, "end": 4}, {"dim": 1, "begin": -2}], "summary_mode": summary}
    with recording(tmp_path / "run", task=task, level="L1", **{task: section}) as found:
        found.start()
        F.relu(X.clone().requires_grad_())
        F.relu(torch.ones(3))  # has no dimension 1, and another size
        found.stop()
    with recording(tmp_path / "part", task=task, level="L1", **{task: {"summary_mode": summary}}) as whole:
        whole.start()
        F.relu(X[1:4, -2:].clone().requires_grad_())
        F.relu(torch.ones(3))
        whole.stop()
    leaf, expected = output_of(found), output_of(whole)
    assert {name: leaf[name] for name in leaf if name != "data_name"} == {
        name: expected[name] for name in expected if name != "data_name"
    }
    assert leaf["shape"] == [3, 2] and leaf["requires_grad"]
    assert leaf["Max"] == 15.0 and leaf["Min"] == 6.0
    assert output_of(found, name="Functional.relu.1.forward")["shape"] == [3]
    assert found.head()["probe"]["settings"]["config"][task]["slice"] == section["slice"]


def test_slice_reaches_gradients_modules_and_parameters(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    with recording(tmp_path / "run", level="mix", statistics={"slice": [{"begin": 0, "end": 2}]}) as found:
        found.start(torch.nn.Sequential(model))
        model(X.clone().requires_grad_()).sum().backward()
        found.stop()
    for name, record in found.records().items():
        for leaf in [*record.get("input_args", []), *record.get("output", []), *record.get("input", [])]:
            if isinstance(leaf, dict) and leaf.get("shape"):
                assert leaf["shape"][0] == 2, name
    gradient = found.records()["Module.0.Linear.parameters_grad"]["weight"][0]
    assert gradient["shape"] == [2, 4]
    np.testing.assert_allclose(gradient["Norm"], model.weight.grad[:2].norm().item(), rtol=1e-6)


def test_observed_values_and_gradients_do_not_change(tmp_path: Path) -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
        loss = model(X).square().mean()
        loss.backward()
        return [loss.detach(), *[parameter.grad for parameter in model.parameters()]]

    expected = train()
    with recording(tmp_path / "run", task="tensor", level="L1", tensor={"slice": [{"end": 1}]}) as found:
        found.start()
        values = train()
        found.stop()
    assert all(torch.equal(a, b) for a, b in zip(values, expected))


def test_request_id_records_the_rows_of_a_request(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", statistics={"request_id": "b"}) as found:
        for tokens in ({"a": 2, "b": 3, "c": 1}, {"a": 6}, {"b": 6}, None):
            found.debugger.start(scheduled_tokens=tokens)
            F.relu(X)
            found.stop()
            found.step()
    assert output_of(found)["shape"] == [3, 4] and output_of(found)["Min"] == 8.0
    assert not found.directory(1).exists()
    assert output_of(found, 2)["shape"] == [6, 4] and output_of(found, 3)["shape"] == [6, 4]


def test_a_request_that_no_batch_holds_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with recording(tmp_path / "run", level="L1", statistics={"request_id": "z"}) as found:
        found.debugger.start(scheduled_tokens={"a": 6})
        F.relu(X)
        found.stop()
        found.step()
    assert 'no call of start() received scheduled_tokens with the request "z"' in capsys.readouterr().err


def test_without_request_id_scheduled_tokens_limit_nothing(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.start(scheduled_tokens={"a": 6})
        F.relu(X)
        found.stop()
    assert output_of(found)["shape"] == [6, 4]


def test_rank_id_names_the_directory_and_keeps_other_ranks(tmp_path: Path) -> None:
    for rank in (1, 0):
        with recording(tmp_path / "run", level="L1") as found:
            found.debugger.start(rank_id=rank)
            F.relu(X)
            found.stop()
            found.step()
    assert sorted(path.name for path in (tmp_path / "run" / "step0").iterdir() if path.is_dir()) == ["rank0", "rank1"]


def test_rank_id_must_be_a_rank(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="rank_id must be"):
        found.debugger.start(rank_id="0")


def test_saved_tensors_are_the_slices(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"store": "files", "tensor": {"slice": [{"dim": 1, "begin": 1}]}}
    with recording(tmp_path / "run", task="tensor", level="L1", **fields) as found:
        found.start()
        F.relu(X)
        found.stop()
        found.step()
    file = found.directory() / "dump_tensor_data" / output_of(found)["data_name"]
    assert torch.equal(torch.load(file, weights_only=True), X[:, 1:])


def test_runs_with_different_slices_are_not_compared(tmp_path: Path) -> None:
    paths = []
    for number, slices in enumerate(([], [{"end": 2}], [{"end": 2}], [{"begin": 2}])):
        with recording(tmp_path / f"run{number}", level="L1", statistics={"slice": slices}) as found:
            found.start()
            F.relu(X)
            found.stop()
        paths.append(found.directory() / "dump.json")
    assert probe_core.compare(paths[1], paths[2]).answer.outcome.value == "AGREE"
    for path, other, text in (
        (paths[0], paths[1], r"holds whole tensors, and the golden holds \[0:2\] in dimension 0"),
        (paths[1], paths[3], r"holds \[0:2\] in dimension 0, and the golden holds \[2:\] in dimension 0"),
    ):
        with pytest.raises(UserError, match=text):
            probe_core.compare(path, other).answer  # noqa: B018
