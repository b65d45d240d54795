"""Calls of another module of the same class, which are recorded with the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.runs.answered import answered, call, causes, normal

STATES = [normal(8, 4, seed=seed) for seed in range(2)]
TARGET_NETWORK, ONLINE_NETWORK = normal(4, 4, seed=10), normal(4, 4, seed=11)


def calls(*networks: tuple[str, Any]) -> dict[str, Any]:
    """Calls of linear modules, each given by its name and its weight."""
    recorded: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for number, (name, weight) in enumerate(networks):
        result = STATES[number] @ weight
        recorded[f"Functional.linear.{number}.forward"] = call(STATES[number], weight, out=result)
        key = f"Module.{name}.enter.Linear.forward.{counts.get(name, 0)}"
        recorded[key] = {**call(STATES[number], out=result), "parameters": {"weight": weight}}
        counts[name] = counts.get(name, 0) + 1
    return recorded


def construct(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the modules around the calls: each call is followed by its module."""
    keys = list(recorded)
    return {key: following if "Functional" in key else None for key, following in zip(keys, [*keys[1:], ""])}


GOLDEN = calls(("1", TARGET_NETWORK), ("4", ONLINE_NETWORK))


def test_parameter_of_another_module_shows_that_this_module_is_called(tmp_path: Path) -> None:
    target = calls(("1", ONLINE_NETWORK), ("1", ONLINE_NETWORK))
    op, statement = causes(answered(tmp_path, target, GOLDEN, construct=construct(target)))[0]
    assert op == "Module.1.enter.Linear.forward.0"
    assert statement == (
        "is a call of another module than in the golden: the target's parameter is that of "
        "Module.4.enter.Linear.forward.0 in the golden"
    )


def test_copied_parameter_is_no_call_of_another_module(tmp_path: Path) -> None:
    target = calls(("1", ONLINE_NETWORK), ("4", ONLINE_NETWORK))
    assert "another module" not in str(causes(answered(tmp_path, target, GOLDEN, construct=construct(target))))


def test_other_weights_are_no_call_of_another_module(tmp_path: Path) -> None:
    for number, weight in enumerate((normal(4, 4, seed=12), np.zeros((4, 4), np.float32))):
        target = calls(("1", weight), ("4", ONLINE_NETWORK))
        report = answered(tmp_path / str(number), target, GOLDEN, construct=construct(target))
        assert causes(report)[0][1].startswith("receives values that differ")
