"""The training programs themselves: every run gives the same bits, and a changed bit is named."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from support.sampling import sampled

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

from support.programs.models import PROGRAMS, cases  # noqa: E402
from support.programs.training import (  # noqa: E402
    VARIANTS,
    Outcome,
    Program,
    Recorder,
    Variant,
    differences,
    digest,
    raw,
    run,
)

PLAIN = VARIANTS["plain"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def unrecorded(program: Program, variant: Variant) -> Outcome:
    """Return the outcome of a run without a recorder."""
    return run(program, variant)


def need(program: Program) -> None:
    if program.needs:
        pytest.importorskip(program.needs)


each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=lambda value: value.name)
each_case = pytest.mark.parametrize(
    "program, variant",
    sampled(cases(), 0.15, lambda case: case[1] is PLAIN),
    ids=lambda value: value.name,
)


class Silent:
    """A recorder that does nothing; the others do something in one place."""

    def start(self, model: nn.Module) -> None:
        self.model = model

    def stop(self) -> None:
        pass

    def step(self) -> None:
        pass


def changed(recorder: Recorder, name: str = "resnet") -> list[str]:
    """Return the places that differ when a recorder is there, without the values."""
    found = differences(unrecorded(PROGRAMS[name], PLAIN), run(PROGRAMS[name], PLAIN, recorder=recorder))
    return [line.split(": ")[0] for line in found]


# The programs


@each_case
def test_every_run_gives_the_same_bits(program: Program, variant: Variant) -> None:
    need(program)
    assert differences(unrecorded(program, variant), run(program, variant)) == []


@each_case
def test_there_is_something_to_compare(program: Program, variant: Variant) -> None:
    """Finite losses, gradients that differ from step to step, parameters that have moved."""
    need(program)
    outcome, untrained = unrecorded(program, variant), run(program, variant, steps=0)
    losses = [np.frombuffer(bytes.fromhex(loss), "<f4")[0] for loss in outcome.losses]
    assert len(set(losses)) == 3 * variant.micro and all(map(math.isfinite, losses))
    first, *_, last = outcome.gradients
    assert len(outcome.gradients) == 3 and first.keys() == last.keys() and first != last
    assert outcome.values.keys() == untrained.values.keys()
    assert all(outcome.values[name] != untrained.values[name] for name in first if last[name] != "None")
    assert outcome.random["torch"] != untrained.random["torch"]


@each_program
def test_the_generator_matters(program: Program) -> None:
    """A number drawn before a step is seen in its loss or in its gradients, and not only in the end."""
    need(program)

    class Drawing(Silent):
        def start(self, model: nn.Module) -> None:
            torch.rand(1)

    outcome = run(program, PLAIN, recorder=Drawing())
    expected = unrecorded(program, PLAIN)
    assert outcome.gradients[0] != expected.gradients[0]
    assert outcome.random["torch"] != expected.random["torch"]


@pytest.mark.parametrize(
    "program",
    sampled(
        (p for p in PROGRAMS.values() if "nonreentrant" in p.variants),
        0,
        lambda p: p.name in ("blocks", "llama", "bert"),
    ),
    ids=lambda p: p.name,
)
def test_checkpointing_computes_again(program: Program) -> None:
    """And the bits are those of a run without it."""
    need(program)

    class Counting(Silent):
        calls = 0

        def start(self, model: nn.Module) -> None:
            def count(*_: object) -> None:
                self.calls += 1

            self.hooks = [module.register_forward_pre_hook(count) for module in model.modules()]

        def stop(self) -> None:
            for hook in self.hooks:
                hook.remove()

    calls = {}
    for name in program.variants:
        run(program, VARIANTS[name], recorder=(recorder := Counting()))
        calls[name] = recorder.calls
        if VARIANTS[name].reentrant is not None:
            assert calls[name] > 1.3 * calls["plain"]
            assert unrecorded(program, VARIANTS[name]).losses[0] == unrecorded(program, PLAIN).losses[0]


def test_a_recorder_is_called_around_each_step() -> None:
    calls: list[str] = []

    class Noting(Silent):
        def start(self, model: nn.Module) -> None:
            calls.append(f"start {all(value.grad is None for value in model.parameters())}")
            self.model = model

        def stop(self) -> None:
            calls.append(f"stop {any(value.grad is not None for value in self.model.parameters())}")

        def step(self) -> None:
            calls.append("step")

    assert changed(Noting(), "mlp_sgd") == []
    assert calls == ["start True", "stop True", "step"] * 3


# What changes bits is named


def test_numbers_drawn_are_named() -> None:
    class Drawing(Silent):
        def __init__(self, draw: Callable[[], object]) -> None:
            self.step = draw

    assert changed(Drawing(random.random)) == ["random state of python"]
    assert changed(Drawing(np.random.rand)) == ["random state of numpy"]
    found = changed(Drawing(lambda: torch.rand(1)))
    assert found[0] == "loss 1" and found[-1] == "random state of torch"


def test_one_bit_of_a_gradient_is_named() -> None:
    """Of -0.0 for 0.0, which are equal to whoever compares numbers."""

    class Negating(Silent):
        def start(self, model: nn.Module) -> None:
            self.hook = model[-1].bias.register_hook(lambda gradient: gradient - gradient)

        def stop(self) -> None:
            self.hook.remove()

    class NegatingMore(Negating):
        def start(self, model: nn.Module) -> None:
            self.hook = model[-1].bias.register_hook(lambda gradient: -(gradient - gradient))

    one = run(PROGRAMS["resnet"], PLAIN, recorder=Negating())
    other = run(PROGRAMS["resnet"], PLAIN, recorder=NegatingMore())
    found = [line.split(": ")[0] for line in differences(one, other)]
    assert found[0] == "gradient of 9.bias in step 0"
    assert "loss 1" not in found


def test_one_bit_of_a_value_is_named() -> None:
    class Nudging(Silent):
        def __init__(self, name: str, step: int, bit: int = 1) -> None:
            self.name, self.left, self.bit = name, step, bit

        def step(self) -> None:
            if self.left == 0:
                with torch.no_grad():
                    value = self.model.state_dict()[self.name]
                    value.view(-1)[-1:].view(torch.int32).bitwise_xor_(self.bit)
            self.left -= 1

    assert changed(Nudging("9.weight", 2)) == ["9.weight after the last step"]
    assert changed(Nudging("1.running_mean", 2)) == ["1.running_mean after the last step"]
    found = changed(Nudging("9.weight", 0, 1 << 16))
    assert found[0] == "loss 1" and found[-1].startswith("optimizer's momentum_buffer")
    assert not any("step 0" in name for name in found)


def test_settings_left_behind_are_named() -> None:
    class Switching(Silent):
        def __init__(self, step: int, switch: Callable[[nn.Module], object]) -> None:
            self.left, self.switch = step, switch

        def step(self) -> None:
            if self.left == 0:
                self.switch(self.model)
            self.left -= 1

    try:
        assert changed(Switching(2, lambda _: torch.set_grad_enabled(False))) == ["mode grad"]
    finally:
        torch.set_grad_enabled(True)
    assert changed(Switching(2, lambda model: model[1].eval())) == ["mode training"]
    assert changed(Switching(2, lambda model: model[1].requires_grad_(False))) == ["mode trained"]
    assert "1.running_mean after the last step" in changed(Switching(0, lambda model: model[1].eval()))


def test_what_is_missing_is_named() -> None:
    outcome = unrecorded(PROGRAMS["mlp_sgd"], PLAIN)
    other = Outcome(**json.loads(json.dumps(dataclasses.asdict(outcome))))
    assert differences(outcome, other) == []
    del other.gradients[2]["0.weight"], other.losses[2]
    digest, loss = outcome.gradients[2]["0.weight"], outcome.losses[2]
    assert differences(outcome, other) == [
        f"loss 2: {loss} and missing",
        f"gradient of 0.weight in step 2: {digest} and missing",
    ]
    assert [line.split(": ")[1] for line in differences(other, outcome)] == [
        f"missing and {loss}",
        f"missing and {digest}",
    ]
    more = dataclasses.replace(outcome, losses=[*outcome.losses, "00"], gradients=[*outcome.gradients, {"new": "x"}])
    assert differences(outcome, more) == [
        "loss 3: missing and 00",
        "gradient of new in step 3: missing and x",
    ]
    more = dataclasses.replace(outcome, losses=[*outcome.losses, "00"])
    assert differences(outcome, more) == ["loss 3: missing and 00"]


class Aliasing(Silent):
    """Passes a view of every tensor, to have the gradient of each use: the sums come in another order."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            def alias(value: object) -> object:
                inner = isinstance(value, Tensor) and value.requires_grad and not value.is_leaf
                return value.view_as(value) if inner and torch.is_grad_enabled() else value

            name = function.__name__
            if not name.endswith("_") and name != "backward":
                args, kwargs = tree_map(alias, (args, kwargs or {}))
            return function(*args, **kwargs or {})

    def start(self, model: nn.Module) -> None:
        self.mode = self.Mode()
        self.mode.__enter__()

    def stop(self) -> None:
        self.mode.__exit__(None, None, None)


@pytest.mark.parametrize("name", ["composite", "llama", "user_hooks"])
def test_the_order_of_sums_is_seen(name: str) -> None:
    """A value that is used several times has a sum as its gradient, and floating-point sums have an order."""
    need(PROGRAMS[name])
    found = changed(Aliasing(), name)
    assert found and found[0].startswith("gradient of")


def test_copied_containers_are_seen() -> None:
    """Values that a module writes into its arguments reach its caller."""

    class Copying(Silent):
        def start(self, model: nn.Module) -> None:
            def copy(_: nn.Module, inputs: Any, names: Any) -> Any:
                return tree_map(lambda value: value, (inputs, names))

            self.hooks = [module.register_forward_pre_hook(copy, with_kwargs=True) for module in model.modules()]

        def stop(self) -> None:
            for hook in self.hooks:
                hook.remove()

    need(PROGRAMS["nested"])
    with pytest.raises(KeyError, match="seen"):
        run(PROGRAMS["nested"], PLAIN, recorder=Copying())


# Bytes of a tensor


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).view(2, 3, 4),
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.arange(24.0).view(4, 6)[1:, ::2],
        torch.arange(3.0).expand(4, 3),
        torch.tensor(1.5),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, -0.0 + 3j], dtype=torch.complex64),
        torch.tensor([1, -1], dtype=torch.int8),
        nn.Parameter(torch.ones(2, 2)).t(),
    ],
    ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}",
)
def test_bytes_are_those_of_numpy(tensor: Tensor) -> None:
    assert raw(tensor) == tensor.detach().numpy().tobytes()


def test_bytes_are_exact() -> None:
    quiet = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert digest(quiet[0]) != digest(quiet[1])
    assert digest(torch.tensor(0.0)) != digest(torch.tensor(-0.0))
    assert digest(torch.zeros(4)) != digest(torch.zeros(2, 2)) != digest(torch.zeros(2, 2, dtype=torch.int32))
    assert raw(torch.tensor([1.0, -2.0], dtype=torch.bfloat16)) == b"\x80\x3f\x00\xc0"
    assert digest(None) == "None" and digest(torch.ones(2)) == digest(torch.ones(4)[::2])
    sparse = torch.sparse_coo_tensor([[0, 2]], torch.tensor([1.0, 2.0]), (3,), check_invariants=True)
    assert raw(sparse) == raw(torch.tensor([[0, 2]])) + raw(torch.tensor([1.0, 2.0]))


def test_reading_bytes_calls_no_operator() -> None:
    """A recorder that listens must not record what looks at it."""
    heard: list[object] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(function)
            return function(*args, **kwargs or {})

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(function)
            return function(*args, **kwargs or {})

    value = nn.Parameter(torch.ones(3, 4)).t()
    with Functions(), Operators():
        digest(value)
    assert heard == []
