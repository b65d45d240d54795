"""Recorded calls run on both sides: random numbers, recurrent layers, running statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.precheck.runner import PyTorchRunner
from support.runs.prechecked import ERROR, PASS, SKIP, Prechecked, leaf, live, value, written
from support.runs.recorded import forward
from support.runs.run_calls import _seed, bare, needing, put  # noqa: F401
from torch.nn import functional as F

# -- random numbers and layers ------------------------------------------------------------------


@pytest.mark.parametrize("api", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d"])
def test_dropout_is_judged_by_its_zeros(tmp_path: Path, api: str) -> None:
    """Guide 7.1: no rows in the details, forward or backward."""
    x = needing(8, 40)
    found = live(tmp_path / "run", lambda: getattr(F, api)(x * 1, 0.4, True).sum().backward())[f"Functional.{api}.0"]
    assert found.statuses == (PASS, PASS), found.text
    assert not found.result.details


def test_dropout_that_drops_too_much_is_an_error(tmp_path: Path) -> None:
    runner = PyTorchRunner({"Functional.dropout": lambda x, p, training: torch.nn.functional.dropout(x, 0.9, True)})
    calls = live(tmp_path / "run", lambda: F.dropout(torch.randn(10, 40), 0.4, True), runner=runner)
    assert calls["Functional.dropout.0"].result.forward is ERROR


LEAF = leaf(torch.full((40, 10), 0.3))
RANDOM: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Torch.bernoulli": ([LEAF], {}),
    "Torch.rand_like": ([LEAF], {}),
    "Torch.normal": ([leaf(torch.zeros(400)), value(2.0)], {}),
    "Torch.randn": ([value(40), value(10)], {}),
    "Torch.rand": ([[value(40), value(10)]], {"generator": None}),
    "Torch.randint": ([value(0), value(9), [value(400)]], {}),
    "Torch.randperm": ([value(400)], {}),
    "Tensor.uniform_": ([LEAF, value(-1), value(1)], {}),
    "Tensor.normal_": ([LEAF], {}),
    "Torch.multinomial": ([leaf(torch.tensor([0.1, 0.9])), value(400), value(True)], {}),
    "Functional.rrelu": ([leaf(torch.tensor([-2.0, -1.0] * 300))], {"training": value(True)}),
    "Functional.gumbel_softmax": ([LEAF], {}),
}


def test_random_calls_are_reproducible(bare: Prechecked) -> None:
    """Whatever ran before, and on both sides alike."""
    name = put(bare, "Functional.dropout.0", LEAF, value(0.5))
    first = bare[name].arrays()[0]
    torch.rand(5)
    again = bare[name]
    assert (first == again.arrays()[0]).all()
    assert (first == again.arrays("bench")[0]).all()
    assert (first != bare[put(bare, "Functional.dropout.1", LEAF, value(0.5))].arrays()[0]).any()


@pytest.mark.parametrize("api", RANDOM)
def test_random_calls_are_judged_by_distribution(bare: Prechecked, api: str) -> None:
    arguments, keywords = RANDOM[api]
    found = bare[put(bare, f"{api}.0", *arguments, **keywords)]
    assert found.outcome.is_random
    assert found.statuses == (PASS, None), found.text
    assert "not compared element by element" in found.text


def test_random_numbers_of_another_distribution_are_an_error(tmp_path: Path) -> None:
    runner = PyTorchRunner({"Torch.randn": lambda *shape: torch.randn(*shape) * 3 + 1})
    calls = written(tmp_path / "run", {"Torch.randn.0.forward": forward(*RANDOM["Torch.randn"][0])}, runner=runner)
    assert calls["Torch.randn.0"].result.forward is ERROR


def test_rrelu_that_does_not_train_is_compared_exactly(bare: Prechecked) -> None:
    found = bare[put(bare, "Functional.rrelu.0", leaf(torch.randn(50)), training=value(False))]
    assert not found.outcome.is_random
    assert found.statuses == (PASS, None)


def test_attention_without_its_dropout(tmp_path: Path) -> None:
    """Both sides compute the same, and a note says why."""
    q, k, v = (needing(2, 4, 6, 8) for _ in range(3))
    for keyword in (True, False):

        def program() -> None:
            more = {"dropout_p": 0.3} if keyword else {}  # noqa: B023
            place = () if keyword else (None, 0.3)  # noqa: B023
            F.scaled_dot_product_attention(q * 1, k * 1, v * 1, *place, **more).sum().backward()

        found = live(tmp_path / str(keyword), program)["Functional.scaled_dot_product_attention.0"]
        assert found.result.forward is PASS, found.text
        assert "Its dropout is off on both sides." in found.text
        scores = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        np.testing.assert_allclose(found.arrays()[0], (scores @ v).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_no_note_where_there_was_no_dropout(tmp_path: Path) -> None:
    q = torch.randn(1, 2, 3, 4)
    found = live(tmp_path / "run", lambda: F.scaled_dot_product_attention(q, q, q))
    assert found["Functional.scaled_dot_product_attention.0"].text == ""


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_recurrent_layers(tmp_path: Path, kind: str, task: str) -> None:
    """VF.lstm and the like: weights in a list, dropout between layers off."""
    layer = getattr(torch.nn, kind)(5, 4, 2, dropout=0.4)
    x = needing(6, 3, 5)
    calls = live(tmp_path / "run", lambda: layer(x * 1)[0].sum().backward(), task)
    (name,) = (name for name in calls.calls if name.startswith("VF."))
    found = calls[name]
    assert found.statuses == (PASS, PASS), found.text
    assert "Its dropout is off on both sides." in found.text
    gradients = [item for item in found.arrays("bench", "backward") if item is not None]
    assert len(gradients) == 1 + 8  # the input, and four of each layer


def test_recurrent_layers_on_packed_sequences(tmp_path: Path) -> None:
    layer = torch.nn.LSTM(5, 4, 2, dropout=0.4)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(6, 3, 5), [6, 4, 2])
    found = live(tmp_path / "run", lambda: layer(packed))["VF.lstm.0"]
    assert found.result.forward is PASS, found.text


@pytest.mark.parametrize(
    "training",
    [
        True,
        False,
    ],
)
def test_running_statistics_are_outputs_too(tmp_path: Path, training: bool) -> None:
    x, mean, var = torch.randn(50, 3) * 2 + 1, torch.zeros(3), torch.ones(3)
    kept = mean.clone(), var.clone()
    found = live(tmp_path / "run", lambda: F.batch_norm(x, *kept, training=training))["Functional.batch_norm.0"]
    assert found.result.forward is PASS
    arrays = found.arrays("bench")
    if not training:
        assert len(arrays) == 1
        return
    assert len(arrays) == 3
    np.testing.assert_allclose(arrays[1], 0.1 * x.double().mean(0), rtol=1e-6)
    np.testing.assert_allclose(arrays[2], 0.9 + 0.1 * x.double().var(0), rtol=1e-6)


def test_wrong_running_statistics_are_an_error(tmp_path: Path) -> None:
    """A fault that the output alone does not show."""

    def faulty(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, *more: Any, **keywords: Any) -> torch.Tensor:
        output = F.batch_norm(x, mean, var, *more, **keywords)
        var.mul_(1.5)
        return output

    runner = PyTorchRunner({"Functional.batch_norm": faulty})
    x = torch.randn(50, 3)
    calls = live(tmp_path / "run", lambda: F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True), runner=runner)
    found = calls["Functional.batch_norm.0"]
    assert [detail.status for detail in found.result.details] == [PASS, PASS, ERROR]


def test_repeat_interleave_has_no_backward(tmp_path: Path) -> None:
    x = needing(3)
    found = live(tmp_path / "run", lambda: torch.repeat_interleave(x * 1, torch.tensor([1, 0, 2])).sum().backward())[
        "Torch.repeat_interleave.0"
    ]
    assert found.statuses == (PASS, SKIP)
    assert found.text == "function backward result is None, skip backward."


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_gradient_of_another_shape_after_a_made_up_mask(tmp_path: Path, task: str) -> None:
    """Of masked_select: as many elements as the made-up mask lets through."""
    x, mask = needing(40, 5), torch.rand(40, 5) < 0.5
    found = live(tmp_path / "run", lambda: torch.masked_select(x * 1, mask).sum().backward(), task)[
        "Torch.masked_select.0"
    ]
    assert found.statuses == (PASS, PASS), found.text
    made_up = found.outcome.kept.arguments.positional[1]
    assert torch.equal(made_up, mask) is (task == "tensor")
    assert found.arrays()[0].size == int(made_up.sum())
    assert (found.arrays("bench", "backward")[0] != 0).sum() == int(made_up.sum())
