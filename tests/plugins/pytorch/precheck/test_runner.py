"""Recorded calls run on both sides: writes in place, several outputs, gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_precheck.specs import ReferenceSpec
from probe_pytorch.precheck.execution import pair_gradients
from probe_pytorch.precheck.raising import iterate_tensors
from probe_pytorch.precheck.runner import PyTorchRunner
from support.runs.prechecked import ERROR, PASS, SKIP, Prechecked, call, leaf, live
from support.runs.run_calls import _seed, bare, needing, side  # noqa: F401
from torch.nn import functional as F

Program = Callable[[], object]


def plus_equals() -> None:
    x = torch.ones(3)
    x += 2.0


def times_equals() -> None:
    x = torch.randn(3)
    x *= torch.randn(3)


def set_item() -> None:
    x = torch.randn(3, 4)
    x[1:3, 0] = 5.0


IN_PLACE: dict[str, Callable[[], object]] = {
    "Tensor.add_": lambda: torch.ones(3).add_(torch.full((3,), 2.0)),
    "Tensor.__iadd__": plus_equals,
    "Tensor.__imul__": times_equals,
    "Tensor.__setitem__": set_item,
    "Tensor.mul_": lambda: torch.randn(3).mul_(3),
    "Tensor.clamp_": lambda: torch.randn(9).clamp_(0, 0.5),
    "Tensor.masked_fill_": lambda: torch.randn(3).masked_fill_(torch.tensor([True, False, True]), 2.0),
    "Tensor.exp_": lambda: torch.randn(3).exp_(),
    "Tensor.addcmul_": lambda: torch.randn(3).addcmul_(torch.randn(3), torch.randn(3), value=0.1),
    "Tensor.lerp_": lambda: torch.randn(3).lerp_(torch.randn(3), 0.3),
    "Tensor.t_": lambda: torch.randn(3, 4).t_(),
    "Tensor.transpose_": lambda: torch.randn(3, 4, 2).transpose_(0, 2),
    "Tensor.squeeze_": lambda: torch.randn(3, 1).squeeze_(),
    "Tensor.unsqueeze_": lambda: torch.randn(3).unsqueeze_(0),
    "Tensor.resize_": lambda: torch.randn(3, 4).resize_(2, 3),
    "Functional.relu": lambda: F.relu(torch.randn(9), inplace=True),
    "Functional.dropout": lambda: F.dropout(torch.randn(9), 0.0, True, True),
    "Functional.relu_": lambda: torch.relu_(torch.randn(9)),
}


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("api", IN_PLACE)
def test_neither_side_sees_what_the_other_writes(tmp_path: Path, api: str, task: str) -> None:
    """Both sides start from what was recorded before the call, which stays for the error data."""
    calls = live(tmp_path / "run", IN_PLACE[api], task)
    found = calls[f"{api}.0"]
    assert found.statuses == (PASS, None), found.text
    again = calls.runner._rebuilder.rebuild_arguments(found.call)
    kept = found.outcome.kept.arguments
    for one, other in zip(iterate_tensors(kept.positional), iterate_tensors(again.positional), strict=True):
        assert one.shape == other.shape
        assert torch.equal(one, other)
    for one, other in zip(found.arrays(), found.arrays("bench"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_is_written_in_place_is_the_output(tmp_path: Path) -> None:
    """``__setitem__`` gives out None: its arguments are compared."""
    x = torch.zeros(2, 3)
    found = live(tmp_path / "run", lambda: x.__setitem__((1, slice(None)), torch.ones(3)))["Tensor.__setitem__.0"]
    assert found.arrays()[0].tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("api", ["add_", "relu_", "__imul__", "__setitem__"])
def test_backward_of_calls_in_place(tmp_path: Path, api: str) -> None:
    y, weight = needing(4, 3), torch.randn(4, 3)

    def program() -> None:
        x = y * 1.0
        if api == "add_":
            x.add_(y)
        elif api == "relu_":
            x.relu_()
        elif api == "__imul__":
            x *= 3
        else:
            x[1:3] = y[:2] * 2
        (x * weight).sum().backward()

    found = live(tmp_path / "run", program)[f"Tensor.{api}.0"]
    assert found.statuses == (PASS, PASS), found.text
    first = found.arrays("bench", "backward")[0]
    x = y.detach().numpy()
    expected = {
        "add_": weight,
        "relu_": weight * (y.detach() > 0),
        "__imul__": weight * 3,
        "__setitem__": weight.clone(),
    }[api]
    if api == "__setitem__":
        expected[1:3] = 0
    assert x.shape == first.shape
    np.testing.assert_allclose(first, expected.numpy(), rtol=1e-6)


def test_out_has_no_backward(bare: Prechecked) -> None:
    """The documented sentence; forward is judged, and ``out`` of one side is not that of the other."""
    x, zeros = leaf(torch.ones(3)), leaf(torch.zeros(3))
    name = "Torch.add.0"
    bare.calls[name] = call(name, x, x, out=zeros, backward={"input": [x], "output": []})
    found = bare[name]
    assert found.statuses == (PASS, SKIP)
    assert found.text == "function with out=... arguments don't support automatic differentiation, skip backward."
    assert found.arrays()[0].tolist() == found.arrays("bench")[0].tolist() == [2, 2, 2]
    assert found.outcome.kept.arguments.keywords["out"].tolist() == [0, 0, 0]


def test_out_that_is_recorded_as_null(tmp_path: Path) -> None:
    """Contents of ``out`` before the call are no input, as recorded."""
    found = live(tmp_path / "run", lambda: torch.add(torch.ones(3), torch.ones(3), out=torch.zeros(3)))["Torch.add.0"]
    assert found.statuses == (PASS, None)
    assert found.arrays()[0].tolist() == [2, 2, 2]


MULTI: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "Torch.topk": (lambda x: torch.topk(x, 2), 2),
    "Torch.sort": (lambda x: torch.sort(x), 2),
    "Torch.max": (lambda x: torch.max(x, dim=1), 2),
    "Tensor.min": (lambda x: x.min(0), 2),
    "Torch.split": (lambda x: torch.split(x, [1, 3], 1), 2),
    "Tensor.chunk": (lambda x: x.chunk(2), 2),
    "Torch.unbind": (lambda x: torch.unbind(x), 4),
    "Torch.var_mean": (lambda x: torch.var_mean(x, 1), 2),
    "Torch.cummax": (lambda x: torch.cummax(x, 0), 2),
    "Torch.linalg.qr": (lambda x: torch.linalg.qr(x), 2),
    "Torch.linalg.slogdet": (lambda x: torch.linalg.slogdet(x), 2),
    "Torch.frexp": (lambda x: torch.frexp(x), 2),
}  # fmt: skip


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("api", MULTI)
def test_several_outputs(tmp_path: Path, api: str, task: str) -> None:
    """A row each, in order; gradients go to all outputs that were given one."""
    function, count = MULTI[api]
    x = needing(4, 4)

    def program() -> None:
        outputs = [o for o in function(x * 1) if o.requires_grad]
        sum((o * torch.randn(o.shape)).sum() for o in outputs).backward()

    found = live(tmp_path / "run", program, task)[f"{api}.0"]
    rows = [detail.name for detail in found.result.details if ".forward." in detail.name]
    assert rows == [f"{api}.0.forward.output.{i}" for i in range(count)]
    assert found.result.forward is PASS, found.text
    assert found.result.backward is PASS, found.text
    assert len(found.arrays("bench", "backward")) == 1


@pytest.mark.parametrize(
    "used",
    [
        0,
        1,
        2,
    ],
)
def test_a_gradient_of_one_output_of_several(tmp_path: Path, used: int) -> None:
    """The others were given none: they count as zero."""
    x, weight = needing(6, 2), torch.randn(2, 2)
    found = live(tmp_path / "run", lambda: (torch.split(x * 1, 2)[used] * weight).sum().backward())["Torch.split.0"]
    expected = np.zeros((6, 2))
    expected[2 * used : 2 * used + 2] = weight
    np.testing.assert_allclose(found.arrays("bench", "backward")[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "needs, recorded, chosen, pairs",
    [
        ([True], [1], None, ([0], [0])),
        ([True], [5], None, ([0], [0])),  # a mask was made up
        ([True, False], [1], None, ([0], [0])),
        ([False, True], [2], None, ([1], [0])),  # outputs that need none were left out
        ([True, True], [2], None, ([1], [0])),  # told by its shape
        ([True, True, True], [None, 2, None], None, ([1], [1])),
        ([True, True], [1], 0, ([0], [0])),
        ([False, True], [2], 0, ([], [])),  # the recorded gradient is another output's
        ([False, False], [1], None, ([], [])),
        ([True], [None], None, ([], [])),
    ],
)
def test_which_output_a_gradient_belongs_to(
    needs: list[bool], recorded: list[int | None], chosen: int | None, pairs: tuple[list[int], list[int]]
) -> None:
    """Outputs and gradients, both by number; gradients are given by their sizes."""
    gradients = [None if size is None else torch.ones(size) for size in recorded]
    assert pair_gradients(side(*needs), gradients, chosen) == pairs


def test_gradients_that_were_not_recorded(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    calls = live(tmp_path / "run", lambda: torch.exp(x * 1))
    recorded = calls["Torch.exp.0"].call
    calls.calls["Torch.exp.0"] = type(recorded)(recorded.name, 0, recorded.forward, {"input": [None]})
    found = calls["Torch.exp.0"]
    assert found.statuses == (PASS, SKIP)
    assert found.text == "No gradient of its outputs was recorded, skip backward."


def test_an_argument_without_gradient_has_its_row(tmp_path: Path) -> None:
    """Its row is SKIP, and does not count."""
    x = needing(3)
    found = live(tmp_path / "run", lambda: torch.mul(x * 1, torch.ones(3)).sum().backward())["Torch.mul.0"]
    assert found.statuses == (PASS, PASS)
    second = found.result.details[2]
    assert (second.name, second.status) == ("Torch.mul.0.backward.output.1", SKIP)
    assert second.messages[0].english or second.messages[0].chinese == "Bench output is None, skip this test."


def test_outputs_of_another_structure(tmp_path: Path) -> None:
    """They have one row."""
    runner = PyTorchRunner({"Torch.sort": lambda x: (x, x, x), "Torch.max": lambda x, dim: x})
    x = torch.randn(3, 4)
    calls = live(tmp_path / "run", lambda: (torch.sort(x), torch.max(x, dim=1)), runner=runner)
    for name in ("Torch.sort.0", "Torch.max.0"):
        found = calls[name]
        assert [(d.name, d.status) for d in found.result.details] == [(f"{name}.forward.output.0", ERROR)]
        assert found.text == "bench and npu output structure is different."


def test_nested_outputs_are_numbered_through(tmp_path: Path) -> None:
    """They are numbered depth first, dicts in the order of the reference."""
    x = torch.randn(3)
    nested = {"Torch.exp": lambda x: {"b": x, "a": [x + 1, (x + 2,)]}}
    calls = live(tmp_path / "run", lambda: torch.exp(x), runner=PyTorchRunner(nested))
    calls.runner._references["Torch.exp"] = ReferenceSpec(name="nested", summary="", factory=Nested, api="Torch.exp")
    found = calls["Torch.exp.0"]
    assert [detail.name[-8:] for detail in found.result.details] == ["output.0", "output.1", "output.2"]
    assert found.result.forward is PASS, found.text
    for number, array in enumerate(found.arrays("bench")):
        np.testing.assert_allclose(array, x.double().numpy() + (1, 2, 0)[number])


# -- random numbers and layers ------------------------------------------------------------------


class Nested:
    """The same values as the kernel's, in another order of the keys."""

    def forward(self, x: torch.Tensor) -> Any:
        return {"a": [x + 1, (x + 2,)], "b": x}
