"""Random faults in random small nets: the cause is named first, no reason is false, and controls agree."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from faults.cases import Case, Forward, Line
from faults.record import record
from faults.score import Score, score
from support.faults import planted_training
from support.faults.planted_training import Witness, training_case, wrong_on_phases
from torch import Tensor, nn
from torch.nn import functional

FEW = 8
MANY = 1000
SIZE = 8
FAULTS = {
    "argument": ("mul", "softmax", "gelu"),
    "scale": ("linear", "norm"),
    "dtype": ("linear",),
    "dropped call": ("tanh", "gelu"),
    "permuted axis": ("permute",),
    "eps": ("norm",),
    "nan": ("buffer",),
}
KINDS = ("mul", "softmax", "gelu", "linear", "norm", "tanh", "permute", "buffer", "residual")
CONTROLS = ("the same", "rounding")
TRAINED = 0.25
"""Share of the controls that are trained."""


@dataclass(frozen=True)
class Planted:
    """A fault in one step of a net; the step is -1 for a control."""

    fault: str
    step: int


class Step(nn.Module):
    """A part of the net: a call or two, one of which may be wrong."""

    def __init__(self, kind: str, fault: str, factor: float) -> None:
        super().__init__()
        self.kind, self.fault, self.factor = kind, fault, factor
        if kind == "linear":
            self.weight = nn.Parameter(torch.randn(SIZE, SIZE) / SIZE**0.5)
        if kind == "norm":
            self.weight = nn.Parameter(1 + torch.randn(SIZE) / 4)
        if kind == "buffer":
            self.register_buffer("values", 1 + torch.rand(SIZE) / 2)
        with torch.no_grad():
            if fault == "scale":
                self.weight *= 1.05
            elif fault == "rounding" and kind in ("linear", "norm"):
                self.weight *= 1 + 2.0**-23
            elif fault == "nan":
                self.values[3] = torch.nan

    def forward(self, x: Tensor) -> Tensor:
        """Compute the step."""
        kind, fault = self.kind, self.fault
        if fault == "dropped call":
            return x
        if kind == "mul":
            return torch.mul(x, self.factor * (1.25 if fault == "argument" else 1))
        if kind == "softmax":
            return functional.softmax(x, dim=1 if fault == "argument" else 2) + x
        if kind == "gelu":
            return functional.gelu(x, approximate="tanh" if fault == "argument" else "none")
        if kind == "linear" and fault == "dtype":
            return functional.linear(x.bfloat16(), self.weight.bfloat16()).float()
        if kind == "linear":
            return functional.linear(x, self.weight)
        if kind == "norm":
            return functional.layer_norm(x, (SIZE,), self.weight, eps=1e-2 if fault == "eps" else 1e-5)
        if kind == "permute":
            return x.permute(0, 1, 2) if fault == "permuted axis" else x.permute(0, 2, 1)
        if kind == "buffer":
            return x * self.values
        return x + torch.tanh(x) if kind == "residual" else torch.tanh(x)


class Net(nn.Module):
    """Some steps, one after the other."""

    def __init__(self, kinds: list[str], planted: Planted, wrong: bool, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        is_control = planted.step < 0
        self.steps = nn.ModuleList(
            Step(kind, planted.fault if wrong and (is_control or n == planted.step) else "", 0.5 + n / 7)
            for n, kind in enumerate(kinds)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute all steps."""
        for step in self.steps:
            x = step(x)
        return x


def case_of(seed: int, is_control: bool) -> Case:
    """Return a random net with a random fault, or a control."""
    chance = random.Random(seed)
    fault = chance.choice((*FAULTS, *planted_training.FAULTS))
    if is_control and chance.random() < TRAINED:
        return training_case(seed, "")
    if not is_control and fault in planted_training.FAULTS:
        return training_case(seed, fault)
    kinds = ["linear", *chance.choices(KINDS, k=chance.randint(4, 8)), "linear"]
    if is_control:
        planted = Planted(chance.choice(CONTROLS), -1)
    else:
        step = chance.randint(1, len(kinds) - 2)
        kinds[step] = chance.choice(FAULTS[fault])
        planted = Planted(fault, step)

    def build(wrong: bool) -> Any:
        net = Net(kinds, planted, wrong, seed)
        torch.manual_seed(seed + 1)
        return Forward(net, {"x": torch.randn(2, SIZE, SIZE)})

    name = f"{'control' if is_control else 'fault'}{seed}"
    right = () if is_control else (Line(place=rf"\bsteps\.{planted.step}\."),)
    return Case(name, f"{planted.fault} in step {planted.step} of {kinds}", build, right)


def scored(seed: int, is_control: bool, directory: Path) -> Score:
    """Record and compare a case."""
    case = case_of(seed, is_control)
    record(case, directory, tasks=("tensor",))
    (found,) = score(case, directory, tasks=("tensor",))
    return found


def check(seeds: range, directory: Path) -> Counter[str]:
    """Check faults and controls; return the number of each word."""
    words: Counter[str] = Counter()
    faulty = []
    for seed in seeds:
        for is_control in (False, True):
            found = scored(seed, is_control, directory)
            words[found.word if found.verdict != "CANNOT TELL" else "cannot tell"] += 1
            first = f"{found.causes[0].place}: {found.causes[0].statement}" if found.causes else "nothing"
            told = f"{found.case.name}, {found.case.description}: {found.verdict}, {found.word}: {first}"
            false = [
                *found.false,
                *(text for one in found.causes for text in wrong_on_phases(found.case, one)),
            ]
            words["false"] += len(false)
            if false or not found.is_right:
                faulty.append(f"{told}; {false}")
    print(*faulty, sep="\n")
    assert not words["false"], "\n".join(faulty)
    return words


def test_few_planted_faults(tmp_path: Path) -> None:
    assert check(range(FEW), tmp_path) == {"right": FEW, "agree": FEW, "false": 0}


@pytest.mark.slow
def test_many_planted_faults(tmp_path: Path) -> None:
    words = check(range(MANY), tmp_path)
    assert words["ALARM"] == 0
    assert words["agree"] >= 0.98 * MANY, "gradients that are zero in theory leave a few in doubt"
    assert words["right"] >= 0.95 * MANY


def test_faults_change_what_their_step_computes() -> None:
    """A fault without an effect would show nothing."""
    for seed in range(30):
        case = case_of(seed, is_control=False)
        if case.name.startswith("training"):
            taken = [Witness().watch(case.build(wrong)).taken for wrong in (False, True)]
            assert taken[0] != taken[1], case.description
            continue
        outputs = []
        for wrong in (False, True):
            program = case.build(wrong)
            outputs.append(program.model(program.inputs["x"]))
        assert re.search(r"step \d", case.description)
        assert not torch.equal(*outputs), case.description
