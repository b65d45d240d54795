"""A model that is saved, copied, sent or exported while it is recorded: as without the recorder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from support.programs import saved_models
from support.programs.saved_models import GRAPHS, WAYS, hooked, net, outcome, paused, words
from support.runs.recording import recording

RECORDERS: dict[str, dict[str, Any]] = {
    "L0": {"level": "L0"},
    "mix": {"level": "mix"},
    "tap": {"level": "L0", "compile": "tap"},
}
SLOW = pytest.mark.slow
SHORT = [pytest.param("L0", marks=SLOW), "mix", "tap"]
"""Level mix stands for L0: its modules are seen the same way."""


@pytest.fixture(autouse=True)
def dynamo() -> Any:
    """Compilation is on and forgets, whatever ran in this process before."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(disable=False):
        yield
    torch._dynamo.reset()


def done(make: Callable[[], Any], way: Callable[[Any], Any], when: str) -> Any:
    """Return the outcome of a model that is used, and saved, copied or exported at some moment of its step."""
    model = make()
    found: list[Any] = []
    if when == "inside":
        saved_models.DURING.append(lambda: found.append(outcome(way, model)))
    loss = model(words()).square().mean()
    if when == "after forward":
        found.append(outcome(way, model))
    loss.backward()
    if when == "after backward":
        found.append(outcome(way, model))
    assert len(found) == 1
    return found[0]


def recorded(path: Path, recorder: str, make: Callable[[], Any], way: Callable[[Any], Any], when: str) -> Any:
    """The same, of a model that is recorded."""
    with recording(path, task="statistics", **RECORDERS[recorder]) as found:

        def started() -> Any:
            model = make()
            found.start(model)
            return model

        result = done(started, way, when)
        found.stop()
        assert found.records()
    return result


@pytest.mark.parametrize("recorder", SHORT)
@pytest.mark.parametrize("way", WAYS)
def test_a_recorded_model_gives_what_it_gives_without(tmp_path: Path, way: str, recorder: str) -> None:
    moments = {"after forward": net, "inside": paused, "after backward": net}
    for when, make in moments.items():
        if way == "parametrize" and when != "after backward":
            continue  # it changes what the backward needs
        expected = done(make, WAYS[way], when)
        assert not isinstance(expected[0], str), expected
        assert recorded(tmp_path / when.replace(" ", "_"), recorder, make, WAYS[way], when) == expected, when


@pytest.mark.parametrize("recorder", ["L0", *(pytest.param(name, marks=SLOW) for name in ("mix", "tap"))])
@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("prune", "send")])
def test_so_does_a_model_with_hooks_of_its_own(tmp_path: Path, way: str, recorder: str) -> None:
    expected = done(hooked, WAYS[way], "after backward")
    assert recorded(tmp_path / "run", recorder, hooked, WAYS[way], "after backward") == expected


LIMITS = {
    ("strict export", "L0"): "torch exports nothing strictly where there are hooks of all modules",
    ("strict export", "mix"): "torch exports nothing strictly where there are hooks of all modules",
    ("script", "tap"): "TorchScript compiles the hooks of a module",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recorder", SHORT)
@pytest.mark.parametrize("way", [pytest.param(way, marks=SLOW) if way == "strict export" else way for way in GRAPHS])
def test_a_recorded_model_is_exported_as_it_is_without(tmp_path: Path, way: str, recorder: str) -> None:
    if (way, recorder) in LIMITS:
        pytest.skip(LIMITS[way, recorder])
    done(net, GRAPHS[way], "after backward")  # torch warns of some things once
    expected = done(net, GRAPHS[way], "after backward")
    if isinstance(expected[0], str):
        assert way == "onnx" and "not installed" in expected[0]
    assert recorded(tmp_path / "run", recorder, net, GRAPHS[way], "after backward") == expected
