"""The view of an older dump beside a run of today: inner calls set aside, gradients at the places of inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from probe_legacy.view import OlderDump
from probe_pytorch.reader import PyTorchReader
from support.runs.answered import Calls, back, call, normal, record
from support.runs.older_dumps import hooks_row, open_dump, write_rows

from probe_core.matching.views import Views
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager

PLAN = Plan(Path(), Path(), Path(), "")


def views(target: Run, golden: Run) -> Views | None:
    return OlderDump().views(PLAN, Manager([]), target, golden)


def recorded(directory: Path, calls: Calls) -> Run:
    path = record(directory, calls)
    path.write_text(path.read_text().replace('"mindspore"', '"pytorch"'))
    return PyTorchReader().open(path)


def rows(name: str, array: np.ndarray, out: np.ndarray) -> list[list[object]]:
    return [
        hooks_row(f"{name}_forward_{side}", *map(float, values.ravel()), shape=values.shape)
        for side, values in (("input.0", array), ("output", out))
    ]


def test_inner_calls_are_set_aside_and_others_numbered_again(tmp_path: Path) -> None:
    one, two = normal(2, 3), normal(2, 3, seed=1)
    older = open_dump(
        write_rows(
            tmp_path / "d.pkl",
            *rows("Torch_relu", one, one),
            *rows("Functional_relu", one, one),
            *rows("Torch_relu", two, two),
        )
    )
    calls = {"Functional.relu.0.forward": call(one, out=one), "Torch.relu.0.forward": call(two, out=two)}
    today = recorded(tmp_path / "t", calls)
    seen = views(older, today)
    assert seen is not None and seen.matcher == "exact"
    assert list(seen.target.names()) == [
        "Torch.relu.inner0.forward",
        "Functional.relu.0.forward",
        "Torch.relu.0.forward",
    ]
    assert list(seen.golden.names()) == list(today.names()) and seen.target.shown is older
    assert "1 call that others made inside" in seen.notes[1]
    assert views(older, older) is None and views(today, today) is None


def test_gradients_in_another_order_get_the_places_of_their_inputs(tmp_path: Path) -> None:
    x, weight, bias = normal(2, 3), normal(5, 3), normal(5)
    gradient = normal(2, 5)
    forward = [
        hooks_row(f"Functional_linear_forward_{side}", *map(float, a.ravel()), shape=a.shape)
        for side, a in (("input.0", x), ("input.1", weight), ("input.2", bias), ("output", gradient))
    ]
    backward = [
        hooks_row(f"Functional_linear_backward_{side}", *map(float, a.ravel()), shape=a.shape)
        for side, a in (("input.0", bias), ("input.1", x), ("input.2", weight.T), ("output.0", gradient))
    ]
    older = open_dump(write_rows(tmp_path / "d.pkl", *forward, *backward))
    calls = {
        "Functional.linear.0.forward": call(x, weight, bias, out=gradient),
        "Functional.linear.0.backward": back(gradient, [x, weight, bias]),
    }
    seen = views(older, recorded(tmp_path / "t", calls))
    assert seen is not None
    names = [
        [slot.name.partition("backward.")[2] for slot in run.record(1).slots] for run in (seen.target, seen.golden)
    ]
    assert names[0] == ["input.0", "output.2", "output.0", "output.~target.2"]
    assert names[1] == ["input.0", "output.0", "output.1", "output.2"]
