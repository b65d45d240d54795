"""The check changes nothing, and right operators of whole trainings raise nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check.operators import SkipReason
from support.programs import models, training
from torch import nn

CASES = {f"{program.name}-{variant.name}": (program, variant) for program, variant in models.cases()}
SHORT = {
    "mlp_adamw-bf16": 3, "mlp_adamw-accumulate": 2, "custom_function-plain": 1, "user_hooks-plain": 1,
    "sparse-plain": 2, "functorch-plain": 1, "penalty-plain": 1, "blocks-reentrant": 1, "resnet-bf16": 1,
}  # fmt: skip
"""Programs that always run, and their steps; the others are slow."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Checks:
    """Recorder of the training programs that checks each step."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.checks: list[DispatchCheck] = []

    def start(self, model: nn.Module) -> None:
        self.checks.append(DispatchCheck(self._directory).__enter__())

    def stop(self) -> None:
        self.checks[-1].__exit__(None, None, None)

    def step(self) -> None:
        pass


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_training_is_the_same_with_and_without_the_check(name: str, tmp_path: Path) -> None:
    program, variant = CASES[name]
    if program.needs:
        pytest.importorskip(program.needs)
    steps = SHORT.get(name, 3)
    expected = training.run(program, variant, steps)
    recorder = Checks(tmp_path)
    outcome = training.run(program, variant, steps, recorder)
    assert training.differences(expected, outcome) == []
    assert len(recorder.checks) == steps
    for check in recorder.checks:
        assert check.findings == () and check.counts.compared > 10
        assert not check.counts.count_skipped(SkipReason.FAILED)


def trained(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], directory: Path | None) -> list[bytes]:
    """Return the bits of parameters and of the optimizer's state after three steps."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = make(list(net.parameters()))
    check = None if directory is None else DispatchCheck(directory).__enter__()
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(3, 4)).square().sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    if check is not None:
        check.__exit__(None, None, None)
        assert check.findings == () and not check.counts.count_skipped(SkipReason.NOT_COMPUTED)
    state = [value for values in optimizer.state.values() for value in values.values()]
    tensors = [*net.parameters(), *(value for value in state if isinstance(value, torch.Tensor))]
    return [tensor.detach().numpy().tobytes() for tensor in tensors] + [torch.get_rng_state().numpy().tobytes()]


OPTIMIZERS: dict[str, Callable[[list[torch.Tensor]], torch.optim.Optimizer]] = {
    "adamw foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True),
    "adam single": lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=False, amsgrad=True),
    "sgd momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1, foreach=True),
}


@pytest.mark.parametrize("name", [*OPTIMIZERS, "adamw fused"])
def test_steps_of_optimizers_are_the_same(name: str, tmp_path: Path) -> None:
    make = OPTIMIZERS.get(name)
    if make is None:
        try:
            torch.optim.AdamW([torch.ones(1, requires_grad=True)], fused=True)
        except RuntimeError:
            pytest.skip("this torch has no fused optimizers on the CPU")

        def make(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
            return torch.optim.AdamW(parameters, lr=0.1, fused=True)

    assert trained(make, tmp_path) == trained(make, None)


def test_warnings_name_the_line_of_the_program(tmp_path: Path) -> None:
    with DispatchCheck(tmp_path), pytest.warns(UserWarning) as caught:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.empty(3))
    assert Path(caught[0].filename).name in (Path(__file__).name, "_python_dispatch.py")
