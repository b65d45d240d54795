"""The conditions of steps of PyTorch programs in ``conditions.json``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.capture.conditions import TorchConditions
from probe_pytorch.generators import find_draws, may_draw, read_states
from support.runs.recording import Recording, recording
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def conditions(found: Recording, step: int = 0) -> dict[str, Any]:
    return json.loads((found.directory(step) / "conditions.json").read_text())


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))


def run_step(found: Recording, model: nn.Module, batch: torch.Tensor) -> None:
    found.start(model)
    model(batch).sum().backward()
    found.stop()
    found.step()


@pytest.mark.parametrize(
    ("level", "op"),
    [("L1", "Functional.dropout.0.forward"), ("mix", "Functional.dropout.0.forward"),
     ("L0", "Module.1.Dropout.forward.0")],
)  # fmt: skip
def test_calls_that_draw_are_recorded_with_their_states(tmp_path: Path, level: str, op: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        torch.manual_seed(5)
        run_step(found, model, torch.ones(3, 4))
        plain = conditions(found)
        (draw,) = [draw for draw in plain["draws"] if draw[0] == op]
        states = {sample["point"]: sample["states"]["torch"] for sample in plain["random"]}
        assert draw[1:] == ["torch", states["forward"], states["end"]]
        assert states["start"] == states["forward"] != states["end"]
        assert {sample["seeds"]["torch"] for sample in plain["random"]} == {5}
        model.eval()
        run_step(found, model, torch.ones(3, 4))
        assert conditions(found, 1)["draws"] == []
        assert conditions(found, 1)["facts"]["numerics"]["training"] is False


def test_a_generator_that_a_call_is_given_is_named_by_its_seed(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        torch.bernoulli(torch.full((9,), 0.5), generator=torch.Generator().manual_seed(9))
        torch.bernoulli(torch.full((9,), 0.5))
        found.stop()
        found.step()
        names = [draw[1] for draw in conditions(found)["draws"]]
    assert names == ["generator 9", "torch"]


def test_recording_draws_no_random_number(tmp_path: Path) -> None:
    def numbers() -> list[float]:
        return [
            random.random(),
            float(np.random.rand()),
            float(torch.rand(())),
            float(F.dropout(torch.ones(9)).sum()),
        ]

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    expected = numbers()
    with recording(tmp_path / "run", level="L1") as found:
        seed()
        found.start()
        assert numbers() == expected
        found.stop()
        found.step()


def test_the_batch_is_hashed_in_its_order(tmp_path: Path) -> None:
    model = net().eval()
    batch = torch.arange(12.0).reshape(3, 4)
    with recording(tmp_path / "run", level="L1") as found:
        for each in (batch, batch.flip(0), batch.clone()):
            run_step(found, model, each)
        hashes = [conditions(found, step)["batch"] for step in range(3)]
    assert hashes[0] == hashes[2] != hashes[1]
    assert all(each["input.0"].startswith("float32[3, 4] ") for each in hashes)


def test_the_position_in_the_data(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=3)
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start(model)
        for _ in range(2):
            for (batch,) in loader:
                found.start(model)
                model(batch)
                found.stop()
                found.step()
        positions = [conditions(found, step)["facts"]["data"] for step in range(4)]
    assert positions == [{"epoch": e, "batch": b} for e in range(2) for b in range(2)]


def test_settings_are_those_at_the_call_of_the_model(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(torch.ones(3, 4))
        found.stop()
        found.step()
        facts = conditions(found)["facts"]
    assert facts["numerics"]["autocast_cpu"] == "bfloat16"
    assert facts["numerics"]["threads"] == torch.get_num_threads()
    assert facts["numerics"]["default_dtype"] == "float32"
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["devices"]["instruction_set"]


def test_values_of_other_variables_are_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    with recording(tmp_path / "run", level="mix") as found:
        run_step(found, net(), torch.ones(3, 4))
        assert conditions(found)["facts"]["environment"]["NCCL_ALGO"] == "Ring"
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert not any(b"planted-secret" in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("Functional.dropout", True), ("Torch.rand", True), ("Tensor.uniform_", True), ("VF.lstm", True),
     ("Torch.multinomial", True), ("Functional.gumbel_softmax", True), ("Functional.relu", False),
     ("Tensor.__add__", False), ("Tensor.__lt__", False), ("Tensor.__eq__", False),
     ("Tensor.float", False), ("Torch.overloads", True), ("Torch.name", True),
     ("Torch.linalg.eig", False), ("Functional.interpolate", True), ("Distributed.all_reduce", False), ("Torch.matmul", False), ("Aten.native_dropout", True)],
)  # fmt: skip
def test_calls_that_may_draw_are_known_by_their_operators(prefix: str, expected: bool) -> None:
    assert may_draw(prefix) is expected


def test_a_failure_to_read_states_does_not_reach_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no states")

    for module in ("call_recorder", "modules"):
        monkeypatch.setattr(f"probe_pytorch.capture.{module}.read_states", fail)
    monkeypatch.setattr("probe_pytorch.capture.conditions.hash_tensor", fail)
    monkeypatch.setattr("probe_recording.capture.condition_capture.hash_host_states", fail)
    for level in ("L0", "mix"):
        found = Recording(tmp_path / level, level=level)
        try:
            run_step(found, net(), torch.ones(3, 4))
        finally:
            found.finish()
        assert conditions(found)["draws"] == []
        assert "no states" in found.errors


def test_conditions_can_be_left_out(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="mix", conditions=False) as found:
        run_step(found, net(), torch.ones(3, 4))
        assert not (found.directory() / "conditions.json").exists()


def test_devices_in_use_have_their_own_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for an accelerator: two devices of one kind, each with a generator."""
    device = SimpleNamespace(
        is_initialized=lambda: True,
        default_generators=(torch.Generator().manual_seed(3), torch.Generator().manual_seed(4)),
        device_count=lambda: 2,
        get_device_name=lambda number: "Stand-in 9000",
    )
    monkeypatch.setattr(torch, "npu", device, raising=False)
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "npu")
    capture = TorchConditions()
    assert capture.read_devices()["npu"] == "Stand-in 9000"
    assert capture.collect_seeds() | {"torch": 0} == {"torch": 0, "npu:0": 3, "npu:1": 4}
    before = read_states()
    torch.rand(2, generator=device.default_generators[1])
    assert [draw.generator for draw in find_draws("Functional.dropout.0.forward", before)] == ["npu:1"]
