"""The recorder on compiled, scripted and copied models, and its other tasks."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs.training import raw
from support.runs.recording import Recording, recording
from support.runs.survivals import (
    LEVELS,
    alone,  # noqa: F401
    hooks_of,
    leaves,
    modes,
    net,
    step_of,
)
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated|requires_grad=True):UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
# -- compiled, scripted, traced, copied -----------------------------------------------------------


def test_compiled_code_is_recorded_as_written_and_used_again_afterwards(tmp_path: Path) -> None:
    ran = []

    def backend(graph: Any, _: Any) -> Any:
        def call(*arguments: Any) -> Any:
            ran.append(1)
            return graph(*arguments)

        return call

    model, x = net(), torch.randn(3, 4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    expected = raw(compiled(x))
    assert ran == [1]
    with recording(tmp_path / "run", level="mix") as found:
        found.start(compiled)
        assert raw(compiled(x)) == expected
        assert ran == [1]  # as it was written
        found.stop()
        found.step()
        assert raw(compiled(x)) == expected
    assert ran == [1, 1]
    assert found.head()["probe"]["compile"] == "eager"
    names = list(found.records())
    assert "Module.outer.0.fc.Linear.forward.0" in names and "Functional.relu.0.forward" in names
    assert not any("_orig_mod" in name for name in names)
    torch._dynamo.reset()


def test_a_function_compiled_while_recording(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        function = torch.compile(lambda x: F.relu(x) * 3, backend="eager")
        assert function(torch.ones(2)).tolist() == [3.0, 3.0]
        found.stop()
        assert function(torch.ones(2)).tolist() == [3.0, 3.0]
    assert {"Functional.relu.0.forward", "Tensor.__mul__.0.forward"} <= found.records().keys()
    torch._dynamo.reset()


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return torch.relu(x) + 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_scripted_function(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "run", level=level) as found:
        found.start(nn.Sequential(nn.ReLU()))
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        y = scripted(x)
        y.sum().backward()
        found.stop()
    assert y.tolist() == [1.0, 3.0] and x.grad is not None and x.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_scripted_module_in_the_model(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        model(torch.ones(1, 2))
        found.stop()
    assert "Module.0.Linear.forward.0" in found.records()
    assert not hooks_of(model)


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_a_model_traced_while_recording(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        traced = torch.jit.trace(model, torch.ones(3, 4), check_trace=False)
        found.stop()
    assert raw(traced(torch.ones(3, 4))) == raw(model(torch.ones(3, 4)))


@pytest.mark.parametrize("level", LEVELS)
def test_a_model_exported_while_recording(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    expected = [str(node.target) for node in torch.fx.symbolic_trace(model).graph.nodes]
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        nodes = [str(node.target) for node in torch.fx.symbolic_trace(model).graph.nodes]
        found.stop()
    assert nodes == expected


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": lambda model: torch.load(saved_model(model), weights_only=False),
    "state": lambda model: copy.copy(model),
}


def saved_model(model: nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("level", "way"),
    [(level, way) for level in LEVELS for way in COPIES],
)
def test_a_model_is_copied_while_it_is_recorded(tmp_path: Path, level: str, way: str) -> None:
    model, x = net(), torch.randn(3, 4)
    expected = raw(model(x))
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        model(x)
        twin = COPIES[way](model)
        assert raw(twin(x)) == expected
        state = copy.deepcopy(model.state_dict())
        found.stop()
        found.step()
    assert raw(twin(x)) == expected and list(state) == list(model.state_dict())
    assert not hooks_of(model)


@pytest.mark.parametrize("when", ["during", "afterwards, a copy"])
def test_a_model_that_was_pickled_needs_no_probe(tmp_path: Path, when: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        text, twin = pickle.dumps(model), copy.deepcopy(model)
        found.stop()
    assert b"probe" not in (text if when == "during" else pickle.dumps(twin))


# -- the tasks overflow_check and structure -------------------------------------------------------


def overflowing(count: int) -> None:
    for _ in range(count):
        F.relu(torch.ones(2))
        torch.mul(torch.full((2,), 3e38), 10.0)
    torch.ones(2) + 1


@pytest.mark.parametrize(("wanted", "recorded"), [(1, 1), (2, 2), (-1, 4)])
def test_as_many_overflows_as_asked_for(
    tmp_path: Path, wanted: int, recorded: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(
        tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": wanted}
    ) as found:
        found.start()
        overflowing(4)
        found.stop()
        found.step()
        found.start()
        overflowing(1)
        found.stop()
        found.step()
    assert list(found.records()) == [f"Torch.mul.{i}.forward" for i in range(recorded)]
    assert (found.path / "step1").exists() == (wanted == -1)
    data = saved_overflow(found)
    assert data["Torch.mul.0.forward.output.0.pt"].tolist() == [float("inf")] * 2
    assert len(data) == 2 * recorded
    assert ("the search ends" in capsys.readouterr().err) == (wanted != -1)
    assert modes() == (0, 0)


def saved_overflow(found: Recording) -> dict[str, np.ndarray[Any, Any]]:
    """The data of a run that the reader, which compares, does not open: of this task."""
    from probe_recording.reading.packed import PackedTensors

    packed = PackedTensors.find(found.directory() / "dump_tensor_data")
    assert packed is not None
    names = [leaf["data_name"] for leaf in leaves(found.records()) if "data_name" in leaf]
    return {name: np.array(packed.load(name.removesuffix(".pt"))) for name in names}


def test_overflows_over_several_steps_are_counted_together(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": 2}) as found:
        for _ in range(3):
            found.start()
            overflowing(1)
            found.stop()
            found.step()
    assert [len(found.records(step)) for step in (0, 1)] == [1, 1]
    assert not (found.path / "step2").exists()


def test_an_overflow_in_the_backward_pass(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="overflow_check") as found:
        found.start()
        x = torch.full((2,), 1e30, requires_grad=True)
        (x * 1e5).sum().backward(torch.tensor(3e38))
        found.stop()
        found.step()
    assert list(found.records()) == ["Tensor.__mul__.0.backward"]
    data = saved_overflow(found)
    assert data["Tensor.__mul__.0.backward.output.0.pt"].tolist() == [float("inf")] * 2
    assert data["Tensor.__mul__.0.backward.input.0.pt"].tolist() == [np.float32(3e38)] * 2


def multiply_into(x: Tensor) -> None:
    torch.mul(x, 10.0, out=x)


@pytest.mark.parametrize(
    ("function", "value", "before"),
    [
        (lambda x: x.mul_(10.0), 3e38, 3e38),
        (lambda x: x.__imul__(10.0), 3e38, 3e38),
        (lambda x: torch.relu_(x), float("inf"), float("inf")),
        (lambda x: x.__setitem__(0, float("inf")), 1.0, 1.0),
        pytest.param(lambda x: F.elu(x, inplace=True), -np.inf, -np.inf, id="inplace"),
        pytest.param(multiply_into, 3e38, 3e38, id="out"),
    ],
)
def test_an_overflow_in_place_keeps_what_was_there_before(
    tmp_path: Path, function: Callable[[Tensor], Any], value: float, before: float
) -> None:
    with recording(tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": -1}) as found:
        x = torch.full((2,), value)
        found.start()
        function(x)
        found.stop()
        found.step()
    (name,) = found.records()
    data = saved_overflow(found)
    assert data[f"{name}.input.0.pt"].tolist() == [np.float32(before)] * 2
    assert data[f"{name}.output.0.pt"].tolist() == x.tolist()


class FallsBack(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return F.linear(x, torch.ones(2, 7))
        except RuntimeError:
            return x * float("inf")


def test_an_overflowing_module_in_which_a_call_raised(tmp_path: Path) -> None:
    section = {"overflow_nums": -1}
    with recording(tmp_path / "run", level="mix", task="overflow_check", overflow_check=section) as found:
        model = nn.Sequential(FallsBack())
        found.start(model)
        model(torch.ones(1, 2))
        found.stop()
        found.step()
    assert saved_overflow(found)["Module.0.FallsBack.forward.0.input.0.pt"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_the_structure_has_names_and_places_only(tmp_path: Path, level: str) -> None:
    model, x = net(), torch.randn(3, 4)
    with recording(tmp_path / "full", level=level) as full:
        full.start(model)
        step_of(model, x)
        full.stop()
        full.step()
    with recording(tmp_path / "run", level=level, task="structure") as found:
        found.start(model)
        step_of(model, x)
        found.stop()
        found.step()
    head = found.head()
    assert (head["task"], head["level"], head["dump_data_dir"]) == ("structure", level, None)
    assert all(record == {} for record in head["data"].values())
    forward = [name for name in full.records() if "forward" in name]
    assert list(head["data"]) == forward
    assert {name: found.parents()[name] for name in forward} == {name: full.parents()[name] for name in forward}
    assert set(found.stacks()) == set(forward)
    assert not (found.directory() / "dump_tensor_data").exists()


def test_an_overflowing_gradient_of_a_parameter_is_kept_as_it_came(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    with recording(tmp_path / "run", level="L0", task="overflow_check", overflow_check={"overflow_nums": -1}) as found:
        found.start(model)
        (model(torch.full((1, 2), 3e38)) * 10).sum().backward()
        weight = model[0].weight
        assert isinstance(weight.grad, Tensor)
        weight.grad.zero_()
        found.stop()
        found.step()
    assert "Module.0.Linear.parameters_grad" in found.records()
    data = saved_overflow(found)
    assert data["Module.0.Linear.parameters_grad.weight.pt"].tolist() == [[float("inf")] * 2]
