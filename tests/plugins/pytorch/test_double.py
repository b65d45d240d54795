"""Scripts that run in float64: the dtypes, the random numbers, and the states of optimizers."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.double import run_in_double_precision
from support.runs.scripts import (
    TRAIN,
    in_a_place_of_its_own,  # noqa: F401
    records,
    script,
)
from torch import nn
from torch.nn import functional as F

DRAWS = {
    "rand": lambda: torch.rand(7),
    "randn": lambda: torch.randn(7, 3),
    "normal": lambda: torch.normal(0.0, 1.0, (9,)),
    "normal of tensors": lambda: torch.normal(torch.zeros(5), torch.ones(5)),
    "uniform_": lambda: torch.empty(33).uniform_(-1, 1),
    "normal_": lambda: torch.empty(33).normal_(),
    "exponential_": lambda: torch.empty(33).exponential_(),
    "bernoulli_": lambda: torch.empty(33).bernoulli_(0.3),
    "bernoulli": lambda: torch.bernoulli(torch.full((33,), 0.3)),
    "dropout": lambda: F.dropout(torch.ones(99), 0.4),
    "rand_like": lambda: torch.rand_like(torch.zeros(9)),
    "randn in float16": lambda: torch.randn(9, dtype=torch.bfloat16),
    "randint": lambda: torch.randint(0, 10, (9,)),
    "randperm": lambda: torch.randperm(9),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 5),
    "linear": lambda: nn.Linear(5, 3).weight.detach(),
    "orthogonal": lambda: torch.randn(4, generator=torch.Generator().manual_seed(3)),
    "xavier": lambda: nn.init.xavier_normal_(torch.empty(5, 7)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_the_script(name: str) -> None:
    torch.manual_seed(5)
    plain, after = DRAWS[name](), torch.get_rng_state()
    torch.manual_seed(5)
    with run_in_double_precision():
        double = DRAWS[name]()
    assert torch.equal(torch.get_rng_state(), after)
    assert double.dtype == (torch.float64 if plain.is_floating_point() else plain.dtype)
    if name == "dropout":
        assert torch.equal(double == 0, plain == 0)
    else:
        assert torch.equal(double.to(plain.dtype), plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3),
        lambda: torch.tensor([0.5]),
        lambda: torch.tensor(np.ones(3, np.float32)),
        lambda: torch.zeros(3, dtype=torch.float32),
        lambda: torch.ones(3).float(),
        lambda: torch.ones(3).to(torch.bfloat16),
        lambda: torch.ones(3).half(),
        lambda: torch.softmax(torch.ones(3), -1, dtype=torch.float32),
        lambda: torch.arange(3).float(),
        lambda: torch.arange(3) / 2,
        lambda: torch.from_numpy(np.ones(3, np.float32)) * 2,
        lambda: torch.from_numpy(np.ones((3, 3), np.float32)) @ torch.ones(3),
    ],
)
def test_values_are_in_float64_whatever_dtype_is_named(make: Any) -> None:
    with run_in_double_precision():
        assert make().dtype == torch.float64


def test_integers_and_booleans_are_unchanged() -> None:
    with run_in_double_precision():
        assert torch.arange(3).dtype == torch.int64
        assert torch.zeros(3, dtype=torch.int32).dtype == torch.int32
        assert (torch.ones(3) > 0).dtype == torch.bool
        assert torch.ones(3).to(torch.uint8).dtype == torch.uint8


def test_the_state_of_torch_is_restored() -> None:
    before = torch.set_default_dtype, torch.get_default_dtype, nn.Module.to, torch.get_default_dtype()
    with run_in_double_precision():
        torch.set_default_dtype(torch.bfloat16)
        assert torch.get_default_dtype() == torch.bfloat16
        assert torch.ones(3).dtype == torch.float64
    assert (
        torch.set_default_dtype,
        torch.get_default_dtype,
        nn.Module.to,
        torch.get_default_dtype(),
    ) == before
    assert torch.ones(3).dtype == torch.float32


def test_autocast_casts_nothing() -> None:
    with run_in_double_precision(), torch.autocast("cpu", dtype=torch.bfloat16):
        layer = nn.Linear(4, 4)
        assert layer(torch.ones(2, 4)).dtype == torch.float64


def test_weights_in_16_bits_are_rounded_and_activations_are_not() -> None:
    torch.manual_seed(0)
    rounded = nn.Linear(8, 8).weight.detach().bfloat16().double()
    torch.manual_seed(0)
    with run_in_double_precision():
        layer = nn.Linear(8, 8).bfloat16()
        assert torch.equal(layer.weight.detach(), rounded)
        third = torch.full((2, 8), 1 / 3).bfloat16()
        assert torch.equal(third, torch.full((2, 8), 1 / 3))


def test_loaded_weights_are_converted_when_their_module_is_called() -> None:
    file = io.BytesIO()
    torch.save(nn.Linear(4, 4), file)
    file.seek(0)
    with run_in_double_precision():
        layer = torch.load(file, weights_only=False)
        optimizer = torch.optim.AdamW(layer.parameters())
        copied = copy.deepcopy(layer)
        for one in (layer, copied):
            one(torch.from_numpy(np.ones((2, 4), np.float32))).sum().backward()
            assert one.weight.dtype == one.weight.grad.dtype == torch.float64
        optimizer.step()
        assert optimizer.state[layer.weight]["exp_avg"].dtype == torch.float64


@pytest.mark.parametrize("settings", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_training_equals_training_of_a_double_model(settings: dict[str, bool]) -> None:
    """The independent run converts model and batch itself."""

    def train(model: nn.Module, batch: torch.Tensor) -> list[torch.Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **settings)  # type: ignore[arg-type]
        for _ in range(3):
            model(batch).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.detach() for parameter in model.parameters()]

    def make() -> tuple[nn.Module, torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv1d(3, 6, 3), nn.GELU(), nn.Flatten(), nn.LayerNorm(48), nn.Linear(48, 2))
        return model, torch.randn(4, 3, 10)

    model, batch = make()
    expected = train(model.double(), batch.double())
    with run_in_double_precision():
        found = train(*make())
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_a_gradient_scaler_works() -> None:
    with run_in_double_precision():
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        parameter = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler.scale((parameter * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(parameter.detach(), -torch.ones(3))
        assert scaler.get_scale() == 16
        optimizer.zero_grad()
        scaler.scale((parameter * float("inf")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(parameter.detach(), -torch.ones(3))
        assert scaler.get_scale() == 8


def test_an_error_in_float64_is_explained(probe: Any) -> None:
    path = script("import torch\nassert torch.ones(1).dtype == torch.float32\n")
    assert probe("run", "-o", "double", "--double", path) == 1
    assert "The script ran in float64 (--double)" in probe.err


def test_probe_run_double_records_float64(probe: Any) -> None:
    path = script(TRAIN)
    assert probe("run", "-o", "plain", path) == 0
    assert probe("run", "-o", "double", "--double", path) == 0
    plain, double = (records(name)["data"] for name in ("plain", "double"))
    assert list(plain) == list(double)
    assert "torch.float64" in str(double) and "torch.float32" not in str(double)
    assert torch.ones(1).dtype == torch.float32
    assert probe("compare", "plain", "double", "-o", "out", "--format", "csv") == 0
    assert probe.out.startswith("AGREE"), probe.out
    assert Path("out").is_dir()
