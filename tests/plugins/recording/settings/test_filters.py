"""Filters of records: scope, list and data mode, alone and together (docs/configuration.md#scope)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probe_recording.settings.config import Config
from probe_recording.settings.filters import Filter
from support.runs.recording import recording
from torch import nn
from torch.nn import functional as F

CALLS = [f"Functional.{name}.{n}.forward" for n in range(2) for name in ("linear", "relu", "softmax")]
"""Of two passes through linear, relu, softmax."""


def filtered(level: str = "L1", scope: Any = (), names: Any = ()) -> Filter:
    return Filter(Config(dump_path=Path("/dump"), level=level, scope=tuple(scope), names=tuple(names)))


def wanted(found: Filter, calls: list[str] = CALLS) -> list[str]:
    return [name for name in calls if found.is_api_selected(name)]


class Walk:
    """Modules and calls as they come; what was wanted."""

    def __init__(self, found: Filter) -> None:
        self.filter = found
        self.wanted: list[str] = []

    def module(self, name: str, *inner: Any) -> None:
        if self.filter.enter_module(name):
            self.wanted.append(name)
        for step in inner:
            self.module(*step) if isinstance(step, tuple) else self.api(step)
        self.filter.leave_module(name)

    def api(self, name: str) -> None:
        if self.filter.is_api_selected(name):
            self.wanted.append(name)


ROOT = "Module.root.Model.forward.0"
BLOCK = "Module.root.block.Block.forward.0"
FC1, FC2 = "Module.root.block.fc1.Linear.forward.0", "Module.root.block.fc2.Linear.forward.0"
HEAD = "Module.root.head.Linear.forward.0"
LINEAR = [f"Functional.linear.{n}.forward" for n in range(3)]
RELU = "Functional.relu.0.forward"
TREE = (ROOT, (BLOCK, (FC1, LINEAR[0]), RELU, (FC2, LINEAR[1])), (HEAD, LINEAR[2]))
ALL = [ROOT, BLOCK, FC1, LINEAR[0], RELU, FC2, LINEAR[1], HEAD, LINEAR[2]]


def walked(level: str, scope: Any = (), names: Any = ()) -> list[str]:
    walk = Walk(filtered(level, scope, names))
    walk.module(*TREE)
    return walk.wanted


# -- APIs --------------------------------------------------------------------------------------------


def test_neither_means_everything() -> None:
    found = filtered()
    assert wanted(found) == CALLS and found.takes_all
    assert not filtered(names=["relu"]).takes_all and not filtered(scope=CALLS[:2]).takes_all


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["relu"], [CALLS[1], CALLS[4]]), (["Functional.relu.1.forward"], [CALLS[4]]), ([".1."], CALLS[3:]),
     (["relu", "linear.0"], [CALLS[0], CALLS[1], CALLS[4]]), (["Functional"], CALLS), (["ReLU"], []),
     (["re", "lu"], [CALLS[1], CALLS[4]]), (["nothing"], [])],
)  # fmt: skip
def test_list_is_a_part_of_the_name(names: list[str], expected: list[str]) -> None:
    assert wanted(filtered(names=names)) == expected


@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 3), (2, 2), (0, 0), (5, 5)])
def test_scope_holds_both_ends(first: int, last: int) -> None:
    assert wanted(filtered(scope=[CALLS[first], CALLS[last]])) == CALLS[first : last + 1]


def test_scope_that_never_begins_or_never_ends() -> None:
    absent = "Functional.gelu.0.forward"
    assert wanted(filtered(scope=[absent, CALLS[3]])) == []
    assert wanted(filtered(scope=[CALLS[2], absent])) == CALLS[2:]
    assert wanted(filtered(scope=[CALLS[4], CALLS[1]])) == CALLS[4:]  # the end came before the beginning


def test_a_scope_compares_whole_names() -> None:
    calls = [f"Functional.relu.{n}.forward" for n in (1, 10, 11, 2)]
    assert wanted(filtered(scope=[calls[0], calls[3]]), ["Functional.relu.11.forward"]) == []
    assert wanted(filtered(scope=[calls[1], calls[1]]), calls) == [calls[1]]


def test_a_scope_opens_again() -> None:
    found = filtered(scope=CALLS[1:3])
    assert wanted(found) == CALLS[1:3]
    assert wanted(found) == CALLS[1:3]


def test_both_are_both() -> None:
    found = filtered(scope=[CALLS[1], CALLS[3]], names=["linear"])
    assert wanted(found) == [CALLS[3]]
    assert wanted(filtered(scope=[CALLS[1], CALLS[2]], names=["linear"])) == []


def test_ends_that_are_not_listed_open_and_close_all_the_same() -> None:
    assert wanted(filtered(scope=[CALLS[0], CALLS[2]], names=["relu"])) == [CALLS[1]]


# -- modules -----------------------------------------------------------------------------------------


def test_all_modules_and_what_is_in_them() -> None:
    assert walked("mix") == ALL


def test_a_range_of_modules_closes_behind_the_last_one() -> None:
    assert walked("mix", scope=[BLOCK, BLOCK]) == [BLOCK, FC1, LINEAR[0], RELU, FC2, LINEAR[1]]
    assert walked("mix", scope=[FC1, FC2]) == [FC1, LINEAR[0], RELU, FC2, LINEAR[1]]
    assert walked("mix", scope=[FC2, HEAD]) == [FC2, LINEAR[1], HEAD, LINEAR[2]]


def test_a_range_from_an_api_to_a_module() -> None:
    assert walked("mix", scope=[RELU, FC2]) == [RELU, FC2, LINEAR[1]]
    assert walked("mix", scope=[FC1, RELU]) == [FC1, LINEAR[0], RELU]


def test_a_range_that_never_begins() -> None:
    assert walked("mix", scope=["Module.x.X.forward.0", HEAD]) == []


def test_mix_lists_all_that_runs_inside_a_listed_module() -> None:
    assert walked("mix", names=["block.Block"]) == [BLOCK, FC1, LINEAR[0], RELU, FC2, LINEAR[1]]
    assert walked("mix", names=["fc1"]) == [FC1, LINEAR[0]]
    assert walked("mix", names=["fc1", "relu"]) == [FC1, LINEAR[0], RELU]
    assert walked("mix", names=["Module.root.Model"]) == ALL


def test_the_count_of_listed_modules_returns_to_zero() -> None:
    """The inner of two listed modules does not end what the outer one wants."""
    assert walked("mix", names=["block"]) == [BLOCK, FC1, LINEAR[0], RELU, FC2, LINEAR[1]]
    walk = Walk(filtered("mix", names=["block"]))
    for _ in range(2):
        walk.module(*TREE)
    walk.api("Functional.after.0.forward")
    assert walk.wanted == 2 * [BLOCK, FC1, LINEAR[0], RELU, FC2, LINEAR[1]]


def test_only_mix_looks_inside() -> None:
    assert walked("L0", names=["block.Block"]) == [BLOCK]
    assert walked("L0", names=["block"]) == [BLOCK, FC1, FC2]
    assert walked("L0", scope=[FC1, HEAD], names=["Linear"]) == [FC1, FC2, HEAD]


def test_mix_with_scope_and_list() -> None:
    assert walked("mix", scope=[FC2, HEAD], names=["block"]) == [FC2, LINEAR[1]]


# -- in a recording ------------------------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=-1))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.block(x)))


def names_of(path: Path, level: str, directions: tuple[str, ...] = ("forward",), **section: Any) -> list[str]:
    torch.manual_seed(0)
    model = Model()
    with recording(path / "run", level=level, statistics={"data_mode": list(directions), **section}) as found:
        for _ in range(2):
            found.start(model)
            model(torch.rand(3, 4)).sum().backward()
            found.stop()
            found.step()
    assert list(found.records(0)) == list(found.records(1))  # each step begins anew
    return list(found.records())


def test_recording_of_a_list(tmp_path: Path) -> None:
    assert names_of(tmp_path, "L1", list=["relu", "softmax"]) == [
        "Functional.softmax.0.forward", "Functional.relu.0.forward",
    ]  # fmt: skip


def test_recording_of_a_scope(tmp_path: Path) -> None:
    scope = ["Functional.softmax.0.forward", "Functional.linear.1.forward"]
    assert names_of(tmp_path, "L1", scope=scope) == [scope[0], "Functional.relu.0.forward", scope[1]]


def test_backward_records_go_with_their_forward(tmp_path: Path) -> None:
    both = ("forward", "backward")
    assert sorted(names_of(tmp_path, "L1", both, list=["softmax"])) == [
        "Functional.softmax.0.backward", "Functional.softmax.0.forward",
    ]  # fmt: skip


def test_recording_inside_a_listed_module(tmp_path: Path) -> None:
    assert names_of(tmp_path, "mix", list=["Module.block.Sequential"]) == [
        "Functional.linear.0.forward", "Module.block.0.Linear.forward.0", "Functional.softmax.0.forward",
        "Module.block.1.Softmax.forward.0", "Module.block.Sequential.forward.0",
    ]  # fmt: skip


def test_a_range_of_modules_in_a_recording(tmp_path: Path) -> None:
    scope = ["Module.block.1.Softmax.forward.0", "Module.block.1.Softmax.forward.0"]
    assert names_of(tmp_path, "mix", scope=scope) == ["Functional.softmax.0.forward", scope[0]]


@pytest.mark.parametrize(
    ("directions", "fields"),
    [(("forward", "input"), {"Functional.relu.0.forward": ["input_args", "input_kwargs"]}),
     (("output",), {"Functional.relu.0.forward": ["output"], "Functional.relu.0.backward": ["output"]}),
     (("backward", "input"), {"Functional.relu.0.backward": ["input"]}),
     (("backward",), {"Functional.relu.0.backward": ["input", "output"]})],
)  # fmt: skip
def test_data_mode(directions: tuple[str, ...], fields: dict[str, list[str]], tmp_path: Path) -> None:
    x = torch.rand(3, requires_grad=True)
    section = {"list": ["relu"], "data_mode": list(directions)}
    with recording(tmp_path / "run", level="L1", statistics=section) as found:
        found.start()
        F.relu(x).sum().backward()
        found.stop()
    assert {key: sorted(record) for key, record in found.records().items()} == fields


@pytest.mark.parametrize(
    ("directions", "gradients"),
    [(("forward",), False), (("forward", "backward"), True), (("backward",), True), (("output",), True),
     (("forward", "output"), False), (("forward", "backward", "input"), True)],
)  # fmt: skip
def test_gradients_of_parameters_are_skipped_for_forward_alone(
    directions: tuple[str, ...], gradients: bool, tmp_path: Path
) -> None:
    model = Model()
    with recording(tmp_path / "run", level="L0", statistics={"data_mode": list(directions)}) as found:
        found.start(model)
        model(torch.rand(3, 4)).sum().backward()
        found.stop()
    names = [name for name in found.records() if name.endswith("parameters_grad")]
    assert len(names) == (2 if gradients else 0)
    for name in names:
        assert all(leaf["Norm"] > 0 for (leaf,) in found.records()[name].values())


def test_a_backward_record_can_be_listed_by_its_full_name(tmp_path: Path) -> None:
    name = "Functional.relu.0.backward"
    assert names_of(tmp_path, "L1", ("all",), list=[name]) == [name]


def test_a_scope_may_begin_with_a_backward_record(tmp_path: Path) -> None:
    scope = ["Functional.linear.1.backward", "Functional.softmax.0.backward"]
    assert names_of(tmp_path, "L1", ("all",), scope=scope) == [
        scope[0],
        "Functional.relu.0.backward",
        scope[1],
    ]


def test_a_scope_may_end_with_a_backward_record(tmp_path: Path) -> None:
    scope = ["Functional.relu.0.forward", "Functional.linear.1.backward"]
    names = names_of(tmp_path, "L1", ("all",), scope=scope)
    assert names[0] == scope[0] and names[-1] == scope[1]


def test_a_backward_record_of_a_module_can_be_listed(tmp_path: Path) -> None:
    name = "Module.head.Linear.backward.0"
    assert name in names_of(tmp_path, "L0", ("all",), list=[name])


def test_backward_records_inside_a_listed_module(tmp_path: Path) -> None:
    """Everything that a listed module does is wanted, in both directions."""
    names = names_of(tmp_path, "mix", ("all",), list=["Module.block.Sequential"])
    assert {name for name in names if "backward" in name} == {
        "Functional.linear.0.backward", "Module.block.0.Linear.backward.0", "Functional.softmax.0.backward",
        "Module.block.1.Softmax.backward.0", "Module.block.Sequential.backward.0",
    }  # fmt: skip
