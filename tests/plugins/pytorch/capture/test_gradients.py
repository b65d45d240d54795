"""Gradients of recorded calls, exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs.training import raw
from support.runs.debugged import (
    X,
    alone,  # noqa: F401
    net,
    once,
    saved,
    train,
    values,
)
from support.runs.recording import recording
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")


def value_of(data: dict[str, np.ndarray[Any, Any]], leaf: dict[str, Any] | None) -> Tensor | None:
    return torch.from_numpy(data[leaf["data_name"]]) if leaf is not None else None


# -- gradients, exactly -----------------------------------------------------------------------------


def alone_gradients(call: Callable[..., Any], inputs: list[Tensor], weights: list[Tensor | None]) -> list[Any]:
    """Return the gradients that autograd gives for this call and nothing else."""
    fresh = [value.detach().clone().requires_grad_(value.is_floating_point()) for value in inputs]
    result = call(*(value.clone() if value.requires_grad else value for value in fresh))
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    pairs = [(output, weight) for output, weight in zip(outputs, weights) if weight is not None]
    wanted = [value for value in fresh if value.requires_grad]
    return list(torch.autograd.grad([o for o, _ in pairs], wanted, [w for _, w in pairs], allow_unused=True))


def in_order(*order: int, turned: int = -1) -> Callable[[list[Any]], list[Any]]:
    """The order in which one node gives its gradients; ``turned``: the one that it gives transposed."""
    return lambda found: [found[i].t() if i == turned else found[i] for i in order]


BIAS = [values(3, 4), values(2, 4, seed=1), values(2, seed=2)]
CLASSES = torch.tensor([0, 3, 1])
CALLS: dict[str, tuple[str, Callable[..., Any], list[Tensor], Any]] = {
    "linear": ("Functional.linear", F.linear, BIAS, in_order(2, 0, 1, turned=1)),
    "linear without bias": ("Functional.linear", F.linear, BIAS[:2], in_order(0, 1, turned=1)),
    "linear 3-D": ("Functional.linear", F.linear, [values(2, 3, 4), *BIAS[1:]], in_order(0, 1, 2)),
    "linear 3-D without bias": ("Functional.linear", F.linear, [values(2, 3, 4), BIAS[1]], in_order(0, 1)),
    "cross_entropy": ("Functional.cross_entropy", lambda x: F.cross_entropy(x, CLASSES), [values(3, 4)], None),
    "layer_norm": ("Functional.layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b),
                   [values(3, 4), values(4, seed=1), values(4, seed=2)], None),
    "matmul": ("Torch.matmul", torch.matmul, [values(3, 4), values(4, 2, seed=1)], None),
    "matmul 3-D": ("Torch.matmul", torch.matmul, [values(2, 3, 4), values(4, 2, seed=1)], None),
    "bmm": ("Torch.bmm", torch.bmm, [values(2, 3, 4), values(2, 4, 2, seed=1)], None),
    "mul": ("Tensor.__mul__", lambda x, y: x * y, [values(3, 4), values(3, 4, seed=1)], None),
    "broadcast": ("Tensor.__mul__", lambda x, y: x * y, [values(3, 4), values(4, seed=1)], None),
    "normalize": ("Functional.normalize", lambda x: F.normalize(x, dim=-1), [values(3, 4)], None),
    "gelu": ("Functional.gelu", F.gelu, [values(3, 4)], None),
    "softmax": ("Functional.softmax", lambda x: F.softmax(x, -1), [values(3, 4)], None),
    "in place": ("Tensor.mul_", lambda x, y: x.mul_(y), [values(3, 4), values(3, 4, seed=1)], None),
    "in place, alone": ("Tensor.exp_", lambda x: x.exp_(), [values(3, 4)], None),
    "relu in place": ("Functional.relu", lambda x: F.relu(x, inplace=True), [values(3, 4)], None),
    "split": ("Torch.split", lambda x: torch.split(x, 2, -1), [values(3, 4)], None),
    "chunk": ("Tensor.chunk", lambda x: x.chunk(2), [values(4, 2)], None),
    "cat": ("Torch.cat", lambda x, y: torch.cat([x, y]), [values(3, 4), values(2, 4, seed=1)], None),
    "where": ("Torch.where", lambda x, y: torch.where(x > 0, x, y), [values(3, 4), values(3, 4, seed=1)], None),
    "select": ("Torch.select", lambda x: torch.select(x, 0, 1), [values(3, 4)], None),
    "sdpa": ("Functional.scaled_dot_product_attention", F.scaled_dot_product_attention,
             [values(1, 2, 3, 4), values(1, 2, 3, 4, seed=1), values(1, 2, 3, 4, seed=2)], None),
    "conv": ("Functional.conv2d", F.conv2d, [values(1, 2, 5, 5), values(3, 2, 3, 3, seed=1), values(3, seed=2)], None),
    "embedding": ("Functional.embedding", lambda w: F.embedding(CLASSES, w), [values(4, 3)], None),
}  # fmt: skip


@pytest.mark.parametrize("only_leaves", [False, True])
@pytest.mark.parametrize("kind", CALLS)
def test_a_backward_record_holds_the_gradients_of_its_own_call(tmp_path: Path, kind: str, only_leaves: bool) -> None:
    name, call, inputs, order = CALLS[kind]
    if only_leaves and "in place" in kind:
        pytest.skip("a leaf cannot be written in place")
    bases = [value.clone().requires_grad_() for value in inputs]
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.start()
        used = bases if only_leaves else [torch.atleast_1d(base) for base in bases]
        if not only_leaves:
            used = [torch.add(value, 0.0) for value in used]
        elsewhere = sum(torch.sub(value, 1.0).sum() for value in used)  # every input has another use
        result = call(*used)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        weights: list[Tensor | None] = [values(*output.shape, seed=9 + i) for i, output in enumerate(outputs)]
        if len(outputs) > 1:
            weights[0] = None  # this output leads nowhere
        loss = sum(torch.dot(o.reshape(-1), w.reshape(-1)) for o, w in zip(outputs, weights) if w is not None)
        (loss + elsewhere).backward()
        found.stop()
        found.step()
    record, data = found.records()[f"{name}.0.backward"], saved(found)
    incoming = [value_of(data, leaf) for leaf in record["input"]]
    for got, wanted in zip(incoming, weights):
        if wanted is not None:
            assert got is not None and torch.equal(got, wanted)
    gradients = alone_gradients(call, inputs, weights)
    expected = order(gradients) if order else gradients
    outgoing = [value_of(data, leaf) for leaf in record["output"]]
    assert len(outgoing) == len(expected)
    for got, wanted in zip(outgoing, expected):
        assert got is not None and got.shape == wanted.shape
        assert torch.equal(got, wanted), (got - wanted).abs().max()


def test_a_square_has_two_halves(tmp_path: Path) -> None:
    """A node with two edges to one tensor gives each its share."""
    x = values(3).requires_grad_()
    found = once(tmp_path / "run", lambda: (x * x).sum().backward(), level="L1", task="tensor")
    shares = [value_of(saved(found), leaf) for leaf in found.records()["Tensor.__mul__.0.backward"]["output"]]
    assert len(shares) == 2
    assert shares[0] is not None and shares[1] is not None
    assert torch.equal(shares[0], x.detach()) and torch.equal(shares[1], x.detach())
    assert x.grad is not None and torch.equal(x.grad, shares[0] + shares[1])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.one(x) * self.two(x) + self.one(x)


def test_modules_that_share_an_input(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(), nn.Linear(4, 4))
    x = values(3, 4).requires_grad_()
    seen: dict[str, list[Tensor]] = {}

    def see(key: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            calls = seen.setdefault(key, [])
            place = len(calls)
            calls.append(output)
            output.register_hook(lambda gradient: calls.__setitem__(place, gradient.clone()))

        return hook

    handles = [getattr(model[0], name).register_forward_hook(see(name)) for name in ("one", "two")]
    found = once(tmp_path / "run", lambda: model(x).square().sum().backward(), model, level="L0", task="tensor")
    for handle in handles:
        handle.remove()
    records, data = found.records(), saved(found)
    for name, calls in (("one", 2), ("two", 1)):
        for number in range(calls):
            record = records[f"Module.0.{name}.Linear.backward.{number}"]
            (incoming,), (outgoing,) = record["input"], record["output"]
            gradient = seen[name][number]
            assert torch.equal(torch.from_numpy(data[incoming["data_name"]]), gradient)
            alone = alone_gradients(getattr(model[0], name), [x.detach()], [gradient])[0]
            assert torch.equal(torch.from_numpy(data[outgoing["data_name"]]), alone)
    whole = data[records["Module.0.Residual.backward.0"]["output"][0]["data_name"]]
    assert x.grad is not None and torch.allclose(torch.from_numpy(whole), x.grad, rtol=1e-6, atol=1e-6)


class Remembers(nn.Module):
    """Uses what it was told before, beside its argument."""

    told: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.told.sin()


def test_what_a_module_uses_beside_its_arguments_is_not_theirs(tmp_path: Path) -> None:
    """The gradient also comes from its argument, by a way that does not lead through this call."""
    model = nn.Sequential(Remembers())
    x = values(3).requires_grad_()

    def work() -> None:
        hidden = x * 1.0
        model[0].told = hidden.exp()
        model(hidden).sum().backward()

    found = once(tmp_path / "run", work, model, level="L0", task="tensor")
    gradient = saved(found)["Module.0.Remembers.backward.0.output.0.pt"]
    assert torch.equal(torch.from_numpy(gradient), x.detach().exp().sin())
    assert x.grad is not None and not torch.equal(torch.from_numpy(gradient), x.grad)


def test_a_module_in_place_and_the_one_before_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = values(3, 4)
    found = once(tmp_path / "run", lambda: model(x).sum().backward(), model, level="L0", task="tensor")
    records, data = found.records(), saved(found)
    order = ["Module.2.Linear.backward.0", "Module.1.ReLU.backward.0", "Module.0.Linear.backward.0"]
    assert [name for name in records if ".backward." in name] == order
    hidden = model[0](x).detach()
    ones = torch.ones(3, 2) @ model[2].weight.detach()
    assert torch.equal(torch.from_numpy(data["Module.1.ReLU.backward.0.input.0.pt"]), ones)
    assert torch.equal(torch.from_numpy(data["Module.1.ReLU.backward.0.output.0.pt"]), ones * (hidden > 0))
    before = data["Module.1.ReLU.forward.0.input.0.pt"]
    assert torch.equal(torch.from_numpy(before), hidden)  # what came in, not what it became


def test_the_gradients_of_parameters(tmp_path: Path) -> None:
    model = net()
    model.block.up.bias.requires_grad_(False)
    found = once(tmp_path / "run", lambda: train(model), model, level="mix", task="tensor")
    records, data = found.records(), saved(found)
    for path, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            record = records[f"Module.{path}.{type(module).__name__}.parameters_grad"]
            if not parameter.requires_grad:
                assert key not in record
                continue
            (leaf,) = record[key]
            assert leaf["data_name"] == f"Module.{path}.{type(module).__name__}.parameters_grad.{key}.pt"
            assert data[leaf["data_name"]].tobytes() == raw(parameter.grad)  # type: ignore[arg-type]
    assert not any("block.Block.parameters_grad" in name for name in records)


def test_a_parameter_without_gradient_stays_null(tmp_path: Path) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: model(X), model, level="L0")
    assert found.records()["Module.head.Linear.parameters_grad"] == {"weight": [None], "bias": [None]}


@pytest.mark.parametrize("stops_between", [False, True])
def test_gradient_accumulation(tmp_path: Path, stops_between: bool) -> None:
    """Forward and backward records of all micro batches; of a parameter, what the last one added."""
    model = net()
    with recording(tmp_path / "run", level="mix", task="tensor") as found:
        for micro in range(3):
            if micro == 0 or stops_between:
                found.start(model)
            train(model, X + micro)
            if micro == 2 or stops_between:
                found.stop()
        found.step()
    records, data = found.records(), saved(found)
    for direction in ("forward", "backward"):
        mine = sorted(name for name in records if name.startswith(f"Module.head.Linear.{direction}"))
        assert mine == [f"Module.head.Linear.{direction}.{i}" for i in range(3)]
        assert f"Functional.gelu.2.{direction}" in records
    other = net()
    train(other, X + 2)
    wanted = dict(other.named_parameters())["head.weight"].grad
    assert wanted is not None
    assert data["Module.head.Linear.parameters_grad.weight.pt"].tobytes() == raw(wanted)
    (leaf,) = records["Module.head.Linear.parameters_grad"]["weight"]
    assert np.float32(leaf["Max"]) == data[leaf["data_name"]].max()


def test_backward_passes_in_another_order_than_their_forwards(tmp_path: Path) -> None:
    model = net()

    def work() -> None:
        first, second = model(X).sum(), model(X * 2).sum() * 3
        second.backward()
        first.backward()

    found = once(tmp_path / "run", work, model, level="mix", task="tensor")
    order = [name for name in found.records() if name.startswith("Module.head.Linear.backward")]
    assert order == ["Module.head.Linear.backward.1", "Module.head.Linear.backward.0"]
    data = saved(found)
    assert data["Module.head.Linear.backward.1.input.0.pt"].max() == 3.0
    assert data["Functional.linear.2.backward.input.0.pt"].max() == 1.0


def test_a_graph_that_is_kept_is_recorded_once(tmp_path: Path) -> None:
    model = net()

    def work() -> None:
        loss = model(X).square().sum()
        loss.backward(retain_graph=True)
        (loss * 2).backward()

    found = once(tmp_path / "run", work, model, level="mix", task="tensor")
    text = (found.directory() / "dump.json").read_text()
    assert text.count('"Module.head.Linear.backward.0":') == 1
    assert saved(found)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recomputation_is_marked(tmp_path: Path, level: str, reentrant: bool) -> None:
    model = net()

    def work() -> None:
        x = (X * 1.0).requires_grad_()
        hidden = checkpoint(model.block, x, use_reentrant=reentrant)
        model.head(hidden).sum().backward()

    found = once(tmp_path / "run", work, model, level=level)
    records = found.records()
    again = {name for name, record in records.items() if record.get("is_recompute") is True}
    apis = {"Functional.linear.3.forward", "Functional.gelu.1.forward"}
    modules = {"Module.block.Block.forward.1", "Module.block.up.Linear.forward.1"}
    wanted = (apis if level != "L0" else set()) | (modules if level != "L1" else set())
    assert wanted <= again
    first = {"Functional.linear.0.forward", "Functional.gelu.0.forward", "Module.block.Block.forward.0"}
    assert not first & again and not any("backward" in name or "head" in name for name in again)
    backward = "Functional.gelu.{}.backward" if level == "L1" else "Module.block.up.Linear.backward.{}"
    assert backward.format(1 if reentrant else 0) in records
    frames = {frame.split(",")[0] for name in again for frame in found.stacks()[name]}
    assert any(frame.endswith("/torch/utils/checkpoint.py") for frame in frames)
    assert not any("probe_pytorch" in frame for frame in frames)
