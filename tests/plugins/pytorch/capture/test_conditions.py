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
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_pytorch.capture.conditions import TorchConditions, hash_tensor
from probe_pytorch.generators import find_draws, may_draw, read_states
from probe_recording.step_facts.batch_values import BLOCK, CHUNK_BLOCKS, hash_array
from support.references.batch_hash import MASK, hash_of_bits
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


def _hash(tensor: torch.Tensor) -> int:
    result = hash_tensor(tensor)
    assert result is not None
    return int(result) & MASK


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 3, 3 * BLOCK + 1])
def test_hash_is_the_weighted_sum(size: int) -> None:
    values = torch.randint(-(2**31), 2**31 - 1, (size,), dtype=torch.int32)
    assert _hash(values) == hash_of_bits(values.tolist())


def test_large_tensors_are_hashed_in_chunks() -> None:
    size = BLOCK * CHUNK_BLOCKS
    first = torch.zeros(size + 5, dtype=torch.uint8)
    second = first.clone()
    first[size - 1], second[size] = 1, 1
    assert len({_hash(first), _hash(second), _hash(torch.zeros(size + 5, dtype=torch.uint8))}) == 3


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=2, max_size=50), st.randoms())
def test_another_order_has_another_hash(values: list[float], rng) -> None:  # type: ignore[no-untyped-def]
    shuffled = values[:]
    rng.shuffle(shuffled)
    tensors = [torch.tensor(each, dtype=torch.float32) for each in (values, shuffled)]
    bits = [tensor.view(torch.int32).tolist() for tensor in tensors]
    assert (_hash(tensors[0]) == _hash(tensors[1])) == (bits[0] == bits[1])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16,
                                   torch.float32, torch.float64, torch.complex64, torch.complex128])  # fmt: skip
def test_strides_and_conjugates_do_not_matter(dtype: torch.dtype) -> None:
    base = (torch.arange(24) * 7 % 5 % 4).reshape(4, 6).to(dtype)
    if dtype.is_complex:
        base = base * (1 + 2j)
        assert _hash(base.conj()) == _hash(base.conj().clone().resolve_conj()) != _hash(base)
    assert _hash(base.t()) == _hash(base.t().contiguous()) != _hash(base)
    assert _hash(base[:, ::2]) == _hash(base[:, ::2].clone())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex128])
@pytest.mark.parametrize("size", [3, BLOCK + 1])
def test_hashing_changes_no_value(dtype: torch.dtype, size: int) -> None:
    values = (torch.arange(size) % 7).to(dtype)
    before = values.clone()
    _hash(values)
    assert torch.equal(values, before)


def test_signs_of_zero_and_payloads_of_nan_count() -> None:
    bits = np.array([0x7FC00000, 0x7FC00001], dtype=np.uint32).view(np.float32)
    nans = torch.from_numpy(bits)
    assert _hash(nans[:1]) != _hash(nans[1:])
    assert _hash(torch.tensor(0.0)) != _hash(torch.tensor(-0.0))


def test_tensors_without_readable_bits_have_no_hash() -> None:
    assert hash_tensor(torch.eye(3).to_sparse()) is None
    assert hash_tensor(torch.empty(3, device="meta")) is None


NUMPY_DTYPES = {
    "bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "float16": "float16", "bfloat16": "uint16", "float32": "float32", "float64": "float64",
    "complex64": "complex64", "complex128": "complex128", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8",
}  # fmt: skip
"""NumPy's dtypes with the bits of torch's, by the names of torch's."""


@pytest.mark.parametrize("name", [name for name in NUMPY_DTYPES if hasattr(torch, name)])
@pytest.mark.parametrize("size", [0, 1, 5, BLOCK - 1, 2 * BLOCK + 3])
def test_arrays_and_tensors_have_the_same_hash(name: str, size: int) -> None:
    dtype = np.dtype(NUMPY_DTYPES[name])
    raw = np.random.RandomState(size).bytes(size * dtype.itemsize)
    if name == "bool":
        raw = bytes(value & 1 for value in raw)
    array = np.frombuffer(raw, dtype).copy()
    plain = array if name == str(dtype) else array.view(f"i{dtype.itemsize}")
    tensor = torch.from_numpy(plain.copy())
    if name != str(dtype):
        tensor = tensor.view(getattr(torch, name))
    assert hash_array(array) == _hash(tensor)


def test_large_arrays_and_tensors_have_the_same_hash() -> None:
    array = np.random.RandomState(0).randint(0, 256, BLOCK * CHUNK_BLOCKS + BLOCK + 7).astype(np.uint8)
    assert hash_array(array) == _hash(torch.from_numpy(array))
