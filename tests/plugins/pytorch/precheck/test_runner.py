"""Recorded calls run on both sides: what is written in place, several outputs, random numbers, fused operators."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_precheck.calls import RecordedCalls
from probe_precheck.settings import Settings
from probe_precheck.specs import ReferenceSpec
from probe_pytorch.precheck.apis import function_of
from probe_pytorch.precheck.execution import Side, gradient_pairs, run_forward
from probe_pytorch.precheck.raising import tensors_in
from probe_pytorch.precheck.runner import COMPOSED, PyTorchRunner
from support.runs.prechecked import ERROR, PASS, SKIP, Prechecked, call, leaf, live, value, written
from support.runs.recorded import forward, write_run
from torch.nn import functional as F

from probe_core.flow.opening import open_run
from probe_core.plugins.hookspecs import GROUP, HOOKSPECS, hookimpl
from probe_core.plugins.manager import Manager

Program = Callable[[], object]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


@pytest.fixture
def bare(tmp_path: Path) -> Prechecked:
    """What runs calls that are written by hand."""
    return written(tmp_path / "bare", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))})


def put(calls: Prechecked, name: str, *arguments: Any, **keywords: Any) -> str:
    """Add a call."""
    calls.calls[name] = call(name, *arguments, **keywords)
    return name


def needing(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


# in place


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
    again = calls.runner._rebuilder.arguments(found.call)
    kept = found.outcome.kept.arguments
    for one, other in zip(tensors_in(kept.positional), tensors_in(again.positional), strict=True):
        assert one.shape == other.shape
        assert torch.equal(one, other)
    for one, other in zip(found.arrays(), found.arrays("bench"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_is_written_in_place_is_the_output(tmp_path: Path) -> None:
    """``__setitem__`` gives out None: its arguments are compared."""
    x = torch.zeros(2, 3)
    found = live(tmp_path / "run", lambda: x.__setitem__((1, slice(None)), torch.ones(3)))[
        "Tensor.__setitem__.0"
    ]
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


# out=


def test_out_has_no_backward(bare: Prechecked) -> None:
    """The documented sentence; forward is judged, and ``out`` of one side is not that of the other."""
    x, zeros = leaf(torch.ones(3)), leaf(torch.zeros(3))
    name = "Torch.add.0"
    bare.calls[name] = call(name, x, x, out=zeros, backward={"input": [x], "output": []})
    found = bare[name]
    assert found.statuses == (PASS, SKIP)
    assert (
        found.text
        == "function with out=... arguments don't support automatic differentiation, skip backward."
    )
    assert found.arrays()[0].tolist() == found.arrays("bench")[0].tolist() == [2, 2, 2]
    assert found.outcome.kept.arguments.keywords["out"].tolist() == [0, 0, 0]


def test_out_that_is_recorded_as_null(tmp_path: Path) -> None:
    """As the recorder does: what lay in it before is no input."""
    found = live(tmp_path / "run", lambda: torch.add(torch.ones(3), torch.ones(3), out=torch.zeros(3)))[
        "Torch.add.0"
    ]
    assert found.statuses == (PASS, None)
    assert found.arrays()[0].tolist() == [2, 2, 2]


# several outputs

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
    found = live(tmp_path / "run", lambda: (torch.split(x * 1, 2)[used] * weight).sum().backward())[
        "Torch.split.0"
    ]
    expected = np.zeros((6, 2))
    expected[2 * used : 2 * used + 2] = weight
    np.testing.assert_allclose(found.arrays("bench", "backward")[0], expected, rtol=1e-6)


def side(*needs: bool) -> Side:
    """A side whose outputs, of shape (1,), (2,) and so on, need a gradient or not."""
    outputs = [torch.ones(i + 1).requires_grad_(one) for i, one in enumerate(needs)]
    return Side([], {}, output=outputs)


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
    assert gradient_pairs(side(*needs), gradients, chosen) == pairs


def test_gradients_that_were_not_recorded(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    calls = live(tmp_path / "run", lambda: torch.exp(x * 1))
    recorded = calls["Torch.exp.0"].call
    calls.calls["Torch.exp.0"] = type(recorded)(recorded.name, 0, recorded.forward, {"input": [None]})
    found = calls["Torch.exp.0"]
    assert found.statuses == (PASS, SKIP)
    assert found.text == "No gradient of its outputs was recorded, skip backward."


def test_an_argument_without_gradient_has_its_row(tmp_path: Path) -> None:
    """Decision B13: SKIP, and it does not count."""
    x = needing(3)
    found = live(tmp_path / "run", lambda: torch.mul(x * 1, torch.ones(3)).sum().backward())["Torch.mul.0"]
    assert found.statuses == (PASS, PASS)
    second = found.result.details[2]
    assert (second.name, second.status) == ("Torch.mul.0.backward.output.1", SKIP)
    assert second.messages[0].english or second.messages[0].chinese == "Bench output is None, skip this test."


def test_outputs_of_another_structure(tmp_path: Path) -> None:
    """Decision B12: one row, whatever is in them."""
    runner = PyTorchRunner({"Torch.sort": lambda x: (x, x, x), "Torch.max": lambda x, dim: x})
    x = torch.randn(3, 4)
    calls = live(tmp_path / "run", lambda: (torch.sort(x), torch.max(x, dim=1)), runner=runner)
    for name in ("Torch.sort.0", "Torch.max.0"):
        found = calls[name]
        assert [(d.name, d.status) for d in found.result.details] == [(f"{name}.forward.output.0", ERROR)]
        assert found.text == "bench and npu output structure is different."


def test_nested_outputs_are_numbered_through(tmp_path: Path) -> None:
    """Decision B12: depth first, dicts in the order of the reference."""
    x = torch.randn(3)
    nested = {"Torch.exp": lambda x: {"b": x, "a": [x + 1, (x + 2,)]}}
    calls = live(tmp_path / "run", lambda: torch.exp(x), runner=PyTorchRunner(nested))
    calls.runner._references["Torch.exp"] = ReferenceSpec(
        name="nested", summary="", factory=Nested, api="Torch.exp"
    )
    found = calls["Torch.exp.0"]
    assert [detail.name[-8:] for detail in found.result.details] == ["output.0", "output.1", "output.2"]
    assert found.result.forward is PASS, found.text
    for number, array in enumerate(found.arrays("bench")):
        np.testing.assert_allclose(array, x.double().numpy() + (1, 2, 0)[number])


class Nested:
    """The same values as the kernel's, in another order of the keys."""

    def forward(self, x: torch.Tensor) -> Any:
        return {"a": [x + 1, (x + 2,)], "b": x}


# random numbers


@pytest.mark.parametrize("api", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d"])
def test_dropout_is_judged_by_its_zeros(tmp_path: Path, api: str) -> None:
    """Guide 7.1: no rows in the details, forward or backward."""
    x = needing(8, 40)
    found = live(tmp_path / "run", lambda: getattr(F, api)(x * 1, 0.4, True).sum().backward())[
        f"Functional.{api}.0"
    ]
    assert found.statuses == (PASS, PASS), found.text
    assert not found.result.details


def test_dropout_that_drops_too_much_is_an_error(tmp_path: Path) -> None:
    runner = PyTorchRunner(
        {"Functional.dropout": lambda x, p, training: torch.nn.functional.dropout(x, 0.9, True)}
    )
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
    calls = written(
        tmp_path / "run", {"Torch.randn.0.forward": forward(*RANDOM["Torch.randn"][0])}, runner=runner
    )
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


# recurrent layers


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


# what a call changes besides


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
    found = live(tmp_path / "run", lambda: F.batch_norm(x, *kept, training=training))[
        "Functional.batch_norm.0"
    ]
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

    def faulty(
        x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, *more: Any, **keywords: Any
    ) -> torch.Tensor:
        output = F.batch_norm(x, mean, var, *more, **keywords)
        var.mul_(1.5)
        return output

    runner = PyTorchRunner({"Functional.batch_norm": faulty})
    x = torch.randn(50, 3)
    calls = live(
        tmp_path / "run", lambda: F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True), runner=runner
    )
    found = calls["Functional.batch_norm.0"]
    assert [detail.status for detail in found.result.details] == [PASS, PASS, ERROR]


# shapes that depend on values


def test_repeat_interleave_has_no_backward(tmp_path: Path) -> None:
    x = needing(3)
    found = live(
        tmp_path / "run", lambda: torch.repeat_interleave(x * 1, torch.tensor([1, 0, 2])).sum().backward()
    )["Torch.repeat_interleave.0"]
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


# fused operators


def fused(bare: Prechecked, *, heads: int = 2) -> str:
    q, k, v = (leaf(torch.randn(2, 4, 8)) for _ in range(3))
    return put(
        bare,
        "NPU.npu_fusion_attention.0",
        q,
        k,
        v,
        value(heads),
        value("BSH"),
        scale=value(0.5),
        keep_prob=value(0.7),
    )


def test_a_fused_operator_without_an_npu(bare: Prechecked) -> None:
    """The composed definition runs on the device, the note says so, and only the first output is compared."""
    found = bare[fused(bare)]
    assert found.statuses == (PASS, None), found.text
    assert COMPOSED.english in found.text
    assert [detail.name for detail in found.result.details] == ["NPU.npu_fusion_attention.0.forward.output.0"]
    assert found.dtypes() == ["float32"]


def test_its_dropout_is_off_on_both_sides(bare: Prechecked) -> None:
    found = bare[fused(bare)]
    assert found.outcome.kept.arguments.keywords["keep_prob"] == 1.0
    assert "Its dropout is off on both sides." in found.text


@pytest.mark.parametrize(
    "api, arguments, outputs",
    [
        ("npu_rms_norm", [(3, 8), (8,)], 2),
        ("npu_swiglu", [(3, 8)], 1),
        ("fast_gelu", [(3, 8)], 1),
        ("npu_mish", [(3, 8)], 1),
        ("npu_linear", [(3, 8), (5, 8)], 1),
        ("npu_rotary_mul", [(2, 3, 2, 4), (1, 3, 1, 4), (1, 3, 1, 4)], 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_fused_operators(
    bare: Prechecked, api: str, arguments: list[tuple[int, ...]], outputs: int, dtype: torch.dtype
) -> None:
    tensors = [leaf(torch.randn(shape).to(dtype)) for shape in arguments]
    found = bare[put(bare, f"NPU.{api}.0", *tensors)]
    assert found.result.forward is not SKIP, found.text
    if dtype is not torch.bfloat16:  # a few elements of bfloat16 near zero are an error by the rules
        assert found.result.forward is not ERROR, found.text
    assert len(found.arrays()) == outputs
    assert found.dtypes()[0] == str(dtype).removeprefix("torch.")


def test_the_gradient_of_a_fused_operator(bare: Prechecked) -> None:
    """Of several outputs, the recorded gradient is the first one's."""
    x, gamma = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    gradient = leaf(torch.randn(3, 8))
    bare.calls["NPU.npu_rms_norm.0"] = call(
        "NPU.npu_rms_norm.0", leaf(x), leaf(gamma), backward={"input": [gradient, None]}
    )
    found = bare["NPU.npu_rms_norm.0"]
    assert found.statuses == (PASS, PASS), found.text
    assert [array.shape for array in found.arrays("bench", "backward")] == [(3, 8), (8,)]


def test_a_fused_operator_that_nobody_defines(bare: Prechecked) -> None:
    found = bare[put(bare, "NPU.npu_nothing.0", leaf(torch.ones(2)))]
    assert found.text == "There is not bench function npu_nothing. SKIP."


# what takes the place of an API


def test_instead(tmp_path: Path) -> None:
    """A kernel under development runs on the device; the reference is torch's own, exact."""
    runner = PyTorchRunner({"Functional.softmax": lambda x, dim, **_: F.softmax(x * 1.05, dim)})
    x = torch.randn(20, 9)
    calls = live(tmp_path / "run", lambda: (F.softmax(x, 1), F.relu(x)), runner=runner)
    found = calls["Functional.softmax.0"]
    assert found.result.forward is ERROR
    np.testing.assert_allclose(found.arrays("bench")[0], F.softmax(x.double(), 1).numpy(), rtol=1e-12)
    assert calls["Functional.relu.0"].result.forward is PASS


class Halved:
    """A user's reference of ``Torch.exp``, which is wrong by a half."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return torch.exp(*arguments, **keywords) / 2


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed plugin with that reference."""
    spec = ReferenceSpec(
        name="halved", summary="exp, halved", factory=Halved, api="Torch.exp", framework="pytorch"
    )
    module = types.ModuleType("probe_user_references")
    module.probe_references = hookimpl(lambda: [spec])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    groups = (metadata.entry_points(group=group) for group in (GROUP, HOOKSPECS))
    points = [point for group in groups for point in group]
    points.append(metadata.EntryPoint("user", module.__name__, GROUP))
    monkeypatch.setattr(
        "probe_core.plugins.manager.metadata.entry_points", lambda: metadata.EntryPoints(points)
    )
    yield


@pytest.mark.usefixtures("plugin")
def test_a_reference_of_a_plugin(tmp_path: Path) -> None:
    """It takes the place of the API in the reference, never on the device."""
    x = torch.randn(30)
    calls = live(tmp_path / "run", lambda: (torch.exp(x), torch.log(x.abs())))
    found = calls["Torch.exp.0"]
    np.testing.assert_allclose(found.arrays("bench")[0], np.exp(x.double().numpy()) / 2, rtol=1e-12)
    np.testing.assert_allclose(found.arrays("device")[0], np.exp(x.numpy()), rtol=1e-6)
    assert found.result.forward is ERROR
    assert calls["Torch.log.0"].result.forward is PASS


# calls that are not run, or cannot be


@pytest.mark.parametrize(
    "name, says",
    [
        ("Torch.nothing.0", "Torch.nothing is not there in torch"),
        ("Foo.bar.0", "API type Foo is not supported for run ut. SKIP."),
        ("Tensor.to.0", "API Tensor.to.0 in black list or not in white list. SKIP."),
        ("Torch.empty_like.0", "in black list or not in white list"),
    ],
)
def test_what_is_not_run(bare: Prechecked, name: str, says: str) -> None:
    found = bare[put(bare, name, leaf(torch.ones(2)))]
    assert found.result.forward is SKIP
    assert says in found.text


@pytest.mark.parametrize(
    "name",
    ["Torch.os.mkdir.0", "Torch.serialization.os.mkdir.0", "Functional.torch.os.mkdir.0", "Torch.save.0"],
)
def test_a_record_runs_no_code_of_its_own(bare: Prechecked, tmp_path: Path, name: str) -> None:
    """A record is data: it can name operators, and nothing else that is callable."""
    path = tmp_path / "made"
    arguments = [leaf(torch.ones(2)), value(str(path))] if "save" in name else [value(str(path))]
    found = bare[put(bare, name, *arguments)]
    assert found.result.forward is SKIP
    assert not path.exists()


@pytest.mark.parametrize("scope", ["Torch", "VF", "Aten"])
def test_a_record_writes_no_file(bare: Prechecked, tmp_path: Path, scope: str) -> None:
    """``from_file`` is an operator, and makes the file that it maps."""
    path = tmp_path / "made"
    bare[put(bare, f"{scope}.from_file.0", value(str(path)), value(True), value(10))]
    assert not path.exists()


@pytest.mark.parametrize(
    "name, argument, state",
    [
        (
            "Torch.set_default_dtype.0",
            {"type": "torch.dtype", "value": "torch.float64"},
            torch.get_default_dtype,
        ),
        ("Torch.set_grad_enabled.0", value(False), torch.is_grad_enabled),
        ("Torch.use_deterministic_algorithms.0", value(True), torch.are_deterministic_algorithms_enabled),
    ],
)
def test_a_record_changes_no_setting(
    bare: Prechecked, name: str, argument: Any, state: Callable[[], object]
) -> None:
    """The calls after it must not run otherwise."""
    before, settings = state(), (torch.get_default_dtype(), torch.is_grad_enabled())
    try:
        bare[put(bare, name, argument)]
        assert state() == before
    finally:
        torch.set_default_dtype(settings[0])
        torch.set_grad_enabled(settings[1])
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "name", ["Torch.zeros", "Torch.randn", "Torch.arange", "Torch.einsum", "Torch.linalg.inv", "Torch.fft.rfft",
             "Torch.special.erf", "Tensor.__getitem__", "Tensor.view", "Functional.linear", "VF.lstm", "Aten.add"]
)  # fmt: skip
def test_operators_can_be_named(name: str) -> None:
    """Those of records of any recorder, ours or not."""
    scope, _, api = name.partition(".")
    assert callable(function_of(scope, api))


def test_a_gradient_of_another_shape_inside_of_a_list(bare: Prechecked) -> None:
    name = "Torch.exp.0"
    x = leaf(torch.randn(3, 4, requires_grad=True))
    bare.calls[name] = call(name, x, backward={"input": [[leaf(torch.randn(4, 3))]]})
    assert bare[name].statuses == (PASS, PASS), bare[name].text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_dtypes_that_numpy_lacks_come_as_float32(bare: Prechecked, dtype: torch.dtype) -> None:
    """With their own name."""
    found = bare[put(bare, "Torch.clone.0", leaf(torch.tensor([-1.5, 0.25, 3.0]).to(dtype)))]
    assert found.arrays()[0].dtype == np.float32
    assert found.arrays()[0][[0, -1]].tolist() == [-1.5, 3.0]
    assert found.dtypes() == [str(dtype).removeprefix("torch.")]


def test_sparse_and_complex(tmp_path: Path) -> None:
    def program() -> None:
        torch.add(torch.eye(3).to_sparse(), torch.eye(3).to_sparse())
        torch.fft.rfft(torch.randn(8))
        torch.abs(torch.fft.rfft(torch.randn(8)))

    real = live(tmp_path / "tensor", program)
    assert "layout torch.sparse_coo cannot be rebuilt" in real["Torch.add.0"].text
    assert real["Torch.fft.rfft.0"].text == "torch.complex64: not supported"
    assert real["Torch.abs.0"].result.forward is PASS
    made_up = live(tmp_path / "statistics", program, "statistics")
    assert "complex64 is not supported for random inputs" in made_up["Torch.abs.0"].text


def test_the_scopes_that_are_run(bare: Prechecked) -> None:
    x = leaf(torch.randn(3, 4))
    for name in ("Functional.relu.0", "Tensor.relu.0", "Torch.relu.0", "Aten.relu.0", "Torch.linalg.inv.0"):
        first = leaf(torch.eye(3)) if "inv" in name else x
        found = bare[put(bare, name, first)]
        assert found.result.forward in (PASS, SKIP if "inv" in name else PASS), (name, found.text)


@pytest.mark.parametrize(
    "device",
    [
        {"type": "torch.device", "value": "npu:0"},
        value("npu:0"),
        value(0),
    ],
    ids=["device", "text", "number"],
)
def test_the_device_of_the_run_is_replaced(bare: Prechecked, device: Any) -> None:
    """Guide 4.1: a run of an NPU is checked on any machine."""
    found = bare[put(bare, "Torch.zeros.0", [value(3)], device=device)]
    assert found.result.forward is PASS, found.text


def test_an_output_larger_than_the_memory_is_not_made(bare: Prechecked) -> None:
    """What is filled has no value before, and takes the shape of the recorded output."""
    name = "Tensor.fill_.0"
    output = {**leaf(torch.ones(2)), "shape": [1 << 40]}
    found = call(name, None, value(1.0))
    bare.calls[name] = replace(found, forward={**found.forward, "output": [output]})
    assert "takes more memory than there is" in bare[name].text


def test_a_list_as_an_index(bare: Prechecked) -> None:
    """Records write tuples as lists: the recorded output's shape tells which it was."""
    x, output = leaf(torch.randn(4, 3)), leaf(torch.randn(2, 3))
    name = "Tensor.__getitem__.0"
    bare.calls[name] = type(call(name))(name, 0, forward(x, [value(0), value(2)], output=[output]))
    assert bare[name].arrays()[0].shape == (2, 3)


def test_a_tuple_as_an_index(bare: Prechecked) -> None:
    found = bare[
        put(
            bare,
            "Tensor.__getitem__.0",
            leaf(torch.randn(4, 3)),
            [value(0), {"type": "ellipsis", "value": "..."}],
        )
    ]
    assert found.arrays()[0].shape == (3,)
    x, index = leaf(torch.randn(4, 3)), [value(1), {"type": "slice", "value": [0, 2, None]}]
    assert bare[put(bare, "Tensor.__getitem__.1", x, index)].arrays()[0].shape == (2,)
    assert bare[put(bare, "Tensor.__getitem__.2", x, [None, value(1)])].arrays()[0].shape == (1, 3)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "xpu"])
def test_autocast_is_entered_for_the_device_in_use(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Decision B28."""
    entered: list[Any] = []

    @contextlib.contextmanager
    def autocast(*arguments: Any) -> Iterator[None]:
        entered.append(arguments)
        yield

    monkeypatch.setattr(torch, "autocast", autocast)
    side = Side([torch.ones(2)], {})
    run_forward(torch.exp, side, "exp", torch.bfloat16, torch.device(kind), 1)
    run_forward(torch.exp, side, "exp", None, torch.device(kind), 1)
    assert entered == [(kind, torch.bfloat16)]


def test_calls_that_are_the_same_work(tmp_path: Path) -> None:
    """Decision B25: values that were drawn, and where they lie, do not count; all else does."""
    x, wide = leaf(torch.randn(3)), leaf(torch.randn(4))
    arguments = {
        "add.0": forward(x, x, alpha=value(1)),
        "add.1": forward({**x, "Max": 9.0, "data_name": "a.pt"}, {**x, "Mean": 1.0}, alpha=value(1)),
        "add.2": forward(x, wide, alpha=value(1)),
        "add.3": forward(x, x, alpha=value(2)),
        "add.4": forward(x, {**x, "requires_grad": True}, alpha=value(1)),
        "add.5": forward(x, {**x, "dtype": "torch.float16"}, alpha=value(1)),
        "mul.0": forward(x, x, alpha=value(1)),
        "add.6": forward(x, wide, alpha=value(1)),
    }
    run = open_run(Manager(), write_run(tmp_path, {f"Torch.{k}.forward": v for k, v in arguments.items()}))
    calls = RecordedCalls(run)
    assert [calls.names[i].removeprefix("Torch.") for i in calls.distinct()] == [
        "add.0", "add.2", "add.3", "add.4", "add.5", "mul.0",
    ]  # fmt: skip
    assert calls.call(0, Settings()).api == "add"
    run.close()
