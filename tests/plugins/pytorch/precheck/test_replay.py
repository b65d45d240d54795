"""Recorded calls computed again: the reference is that of the recorded inputs, for every kind of call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from probe_precheck.api import NotRun, Unbuildable
from probe_precheck.replaying import Replay
from probe_pytorch.precheck.replay import NO_VALUES, RANDOM
from support.runs.explained import recorded_program, replayed
from torch.nn import functional as F


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def error(replay: Replay, direction: str = "forward") -> float:
    """The largest error of a direction, relative to the largest element."""
    results = getattr(replay, direction)
    assert not isinstance(results, str) and results, results
    return max(
        float(np.abs(one.recorded.values.astype(np.float64) - one.reference).max())
        / max(float(np.abs(one.reference).max()), 1e-30)
        for one in results
    )


def linear() -> None:
    F.linear(drawn(3, 4, 8), drawn(5, 8), drawn(5)).sum().backward()


def attention() -> None:
    F.scaled_dot_product_attention(drawn(1, 2, 6, 4), drawn(1, 2, 6, 4), drawn(1, 2, 6, 4)).sum().backward()


def loss() -> None:
    F.cross_entropy(drawn(6, 5), torch.tensor([0, 1, 2, 3, 4, 0])).backward()


def in_place() -> None:
    x = torch.randn(6)
    x.mul_(3.0)
    x.addcdiv_(torch.randn(6), torch.rand(6) + 1, value=-0.1)


def statistics() -> None:
    mean, variance = torch.zeros(3), torch.ones(3)
    (F.batch_norm(drawn(4, 3, 5), mean, variance, drawn(3), drawn(3), True) * torch.randn(5)).sum().backward()


def broadcast() -> None:
    (drawn(4, 1) * drawn(1, 5) + drawn(5)).sum().backward()


CASES: list[tuple[Callable[[], object], str, bool]] = [
    (linear, "Functional.linear.0", True),
    (attention, "Functional.scaled_dot_product_attention.0", True),
    (loss, "Functional.cross_entropy.0", True),
    (in_place, "Tensor.mul_.0", False),
    (in_place, "Tensor.addcdiv_.0", False),
    (statistics, "Functional.batch_norm.0", True),
    (broadcast, "Tensor.__mul__.0", True),
    (broadcast, "Tensor.__add__.0", True),
]


@pytest.mark.parametrize(("program", "name", "backward"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_the_reference_is_near_what_was_recorded(
    program: Callable[[], object], name: str, backward: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    replay = replayed(recorded_program(tmp_path / "run", program), name)
    assert error(replay) < 1e-6
    assert (replay.backward is not None) is backward
    if backward:
        assert error(replay, "backward") < 3e-6
    for one in (*replay.forward, *(replay.backward or ())):
        assert not isinstance(one, str) and one.reference.dtype == np.float64


def test_sixteen_bits_are_computed_in_float32(tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", lambda: F.gelu(drawn(50, dtype=torch.bfloat16)))
    (one,) = replayed(dump, "Functional.gelu.0").forward
    assert not isinstance(one, str)
    assert (one.reference.dtype, one.recorded.kind) == (np.float32, "bfloat16")


def test_autocast_rounds_its_inputs_first(tmp_path: Path) -> None:
    def program() -> None:
        x, weight = drawn(8, 32), drawn(4, 32)
        with torch.autocast("cpu", torch.bfloat16):
            y = F.linear(x, weight)
        y.float().square().sum().backward()

    replay = replayed(recorded_program(tmp_path / "run", program), "Functional.linear.0")
    assert error(replay) < 2.0**-8
    backward = replay.backward
    assert isinstance(backward, tuple) and {one.recorded.kind for one in backward} == {"bfloat16"}
    assert error(replay, "backward") < 2.0**-8


def test_inputs_of_convolutions_stay_as_recorded(tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", lambda: F.conv2d(drawn(1, 3, 8, 8), drawn(4, 3, 3, 3)))
    assert error(replayed(dump, "Functional.conv2d.0")) < 1e-6


def test_a_wrong_recorded_value_is_beside_the_right_one(tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", linear)
    file = dump.parent / "dump_tensor_data" / "Functional.linear.0.forward.output.0.pt"
    torch.save(torch.load(file) * 2, file)
    assert error(replayed(dump, "Functional.linear.0")) == pytest.approx(1.0)


def test_moved_inputs_move_the_result_by_rounding(tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", linear)
    (first,), (again,), (moved,) = (
        replayed(dump, "Functional.linear.0", moved=is_moved).forward for is_moved in (False, False, True)
    )
    assert not isinstance(first, str) and not isinstance(again, str) and not isinstance(moved, str)
    assert np.array_equal(first.reference, again.reference)
    off = np.abs(moved.reference - first.reference).max() / np.abs(first.reference).max()
    assert 1e-9 < off < 1e-6


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (lambda: F.dropout(torch.ones(9), 0.5), "Functional.dropout.0"),
        (lambda: torch.bernoulli(torch.full((9,), 0.5)), "Torch.bernoulli.0"),
        (
            lambda: F.scaled_dot_product_attention(*(torch.ones(1, 1, 3, 4) for _ in "qkv"), dropout_p=0.5),
            "Functional.scaled_dot_product_attention.0",
        ),
    ],
)
def test_random_calls_are_not_computed(program: Callable[[], object], name: str, tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", program)
    with pytest.raises(NotRun, match=RANDOM):
        replayed(dump, name)


def test_dropout_that_is_off_is_computed(tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", lambda: F.dropout(torch.ones(9), 0.5, False))
    assert error(replayed(dump, "Functional.dropout.0")) == 0


def test_inputs_are_never_made_up(tmp_path: Path) -> None:
    dump = recorded_program(tmp_path / "run", linear)
    text = dump.read_text().replace('"data_name": "Functional.linear.0.forward.input.1', '"gone": "')
    dump.write_text(text)
    with pytest.raises(Unbuildable, match=NO_VALUES):
        replayed(dump, "Functional.linear.0")
