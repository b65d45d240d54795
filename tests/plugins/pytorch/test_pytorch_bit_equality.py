"""Recording changes nothing: losses, gradients, parameters and random states after three steps, to the bit."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.programs import models, training
from support.runs.recording import recording
from support.sampling import sampled

CASES = {f"{program.name}-{variant.name}": (program, variant) for program, variant in models.cases()}
MODES = [
    ("statistics", "L1"),
    ("statistics", "mix"),
    ("statistics", "L0"),
    ("tensor", "L1"),
    ("tensor", "mix"),
]
OTHER_MODES = [("statistics", "L2"), ("overflow_check", "L1"), ("structure", "mix")]
RUNS = [(name, *mode) for mode in MODES for name in CASES]
RUNS += [(name, *mode) for mode in OTHER_MODES for name in CASES if name.endswith("-plain")]


MANY_VARIANTS = ("llama", "bert", "lstm", "mlp_adamw")
"""Programs that always run in every variant they have: two kinds of attention, a recurrent net and a plain one."""


def short() -> set[tuple[str, str, str]]:
    """Choose one mode for each program, and for some in each variant, so that all modes have their turn."""
    chance = random.Random(8)
    found = set()
    for number, (name, (program, variant)) in enumerate(CASES.items()):
        is_plain = variant.name == "plain"
        modes = [*MODES, *OTHER_MODES] if is_plain else MODES
        mode = modes[(number + chance.randrange(2)) % len(modes)]
        if is_plain or program.name in MANY_VARIANTS:
            found.add((name, *mode))
    assert {run[1:] for run in found} == {*MODES, *OTHER_MODES}
    assert {CASES[run[0]][1].name for run in found} == {variant.name for _, variant in CASES.values()}
    return found


SHORT = short()


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def bare(name: str) -> training.Outcome:
    return training.run(*CASES[name])


@pytest.mark.parametrize(("name", "task", "level"), sampled(RUNS, 0, SHORT.__contains__), ids=lambda value: value)
def test_training_is_the_same_with_and_without_recording(name: str, task: str, level: str, tmp_path: Path) -> None:
    program, variant = CASES[name]
    if program.needs:
        pytest.importorskip(program.needs)
    expected = bare(name)
    with recording(tmp_path / "run", task=task, level=level) as found:
        outcome = training.run(program, variant, recorder=found)
    assert training.differences(expected, outcome) == []
    if task != "overflow_check":
        assert all(found.records(step) for step in range(3))
