"""Custom operators of ``torch.ops``: names, arguments that they write to, gradients, and the selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.capture.operators import Operator, find_schema, find_written_arguments
from support.runs.recording import Recording, recording

SPACE = "probe_test_operators"


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def normalize(out: torch.Tensor, x: torch.Tensor) -> None:
    out.copy_(x / x.norm())


def attend(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    cache.add_(x)
    return x * 2


@pytest.fixture(scope="module", autouse=True)
def operators() -> Any:
    library = torch.library.Library(SPACE, "DEF")
    for schema, function, key in (
        ("scaled(Tensor x, float factor) -> Tensor", scaled, "CompositeImplicitAutograd"),
        ("normalize(Tensor(a!) out, Tensor x) -> ()", normalize, "CPU"),
        ("attend(Tensor x, *, Tensor(a!) cache) -> Tensor", attend, "CPU"),
    ):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, key)
    yield getattr(torch.ops, SPACE)
    del library


def calls(records: dict[str, Any]) -> list[str]:
    return [name for name in records if name.startswith(SPACE)]


def test_custom_operators_are_recorded_under_namespace_and_name(operators: Any, tmp_path: Path) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        y = operators.scaled(x, 2.0)
        operators.scaled.default(y, factor=0.5).sum().backward()
        run.stop()
    records = run.records()
    name = f"{SPACE}.scaled"
    assert calls(records) == [
        f"{name}.0.forward", f"{name}.1.forward", f"{name}.1.backward", f"{name}.0.backward",
    ]  # fmt: skip
    assert records[f"{name}.0.forward"]["input_args"][1]["value"] == 2.0
    assert records[f"{name}.1.forward"]["input_kwargs"]["factor"]["value"] == 0.5
    assert records[f"{name}.0.backward"]["input"][0]["Max"] == 0.5
    assert records[f"{name}.0.backward"]["output"][0]["Max"] == 1.0
    assert __file__ in run.stacks()[f"{name}.0.forward"][0]


def test_custom_operators_hide_the_calls_inside_them(operators: Any, tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        operators.scaled(torch.ones(3), 2.0)
        run.stop()
    assert list(run.records()) == [f"{SPACE}.scaled.0.forward"]


def test_overwritten_arguments_are_recorded_before_and_after(operators: Any, tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        operators.normalize(torch.full((4,), 7.0), torch.ones(4))
        operators.attend(torch.full((4,), 3.0), cache=torch.ones(4))
        run.stop()
    normalized = run.records()[f"{SPACE}.normalize.0.forward"]
    assert [leaf["Max"] for leaf in normalized["input_args"]] == [7.0, 1.0]
    assert [leaf["Max"] for leaf in normalized["output"]] == [0.5]
    attended = run.records()[f"{SPACE}.attend.0.forward"]
    assert attended["input_kwargs"]["cache"]["Max"] == 1.0
    assert [leaf["Max"] for leaf in attended["output"]] == [6.0, 4.0]


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="torch 2.4 or later")
def test_operators_defined_in_python_are_recorded_with_gradients(tmp_path: Path) -> None:
    @torch.library.custom_op(f"{SPACE}::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return torch.pow(x, 3)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    cube.register_autograd(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2, setup_context=keep)
    x = torch.full((2,), 2.0, requires_grad=True)
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        cube(x).sum().backward()
        run.stop()
    name = f"{SPACE}.cube.0"
    assert calls(run.records()) == [f"{name}.forward", f"{name}.backward"]
    assert run.records()[f"{name}.backward"]["output"][0]["Max"] == 12.0
    assert not [name for name in run.records() if name.startswith("Autograd")]


def test_namespaces_that_are_not_selected_are_counted(operators: Any, tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", custom_op_namespaces=["_C_ascend"]) as run:
        for _ in range(2):
            run.start()
            operators.scaled(torch.ones(3), 2.0)
            operators.scaled(torch.ones(3), 2.0)
            run.stop()
            run.step()
    for step in range(2):
        assert not calls(run.records(step))
        assert run.head(step)["probe"]["unrecorded"] == {f"{SPACE}.scaled": 2}


def test_selected_namespaces_are_recorded(operators: Any, tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", custom_op_namespaces=[SPACE]) as run:
        run.start()
        operators.scaled(torch.ones(3), 2.0)
        run.stop()
    assert calls(run.records()) == [f"{SPACE}.scaled.0.forward"]
    families = run.head()["probe"]["families"]
    assert families == {"custom_operators": [SPACE], "autograd_functions": []}


def test_operators_of_torch_itself_are_not_recorded_as_custom(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        torch.ops.prims.mul(torch.ones(3), torch.ones(3))
        torch.ops.aten.relu(torch.ones(3))
        run.stop()
    assert list(run.records()) == ["Aten.relu.0.forward"]
    assert run.head()["probe"]["unrecorded"] == {}


def test_operator_of_returns_namespace_and_name() -> None:
    assert Operator.from_function(torch.ops.aten.add) == Operator("aten", "add")
    assert Operator.from_function(torch.ops.aten.add.Tensor) == Operator("aten", "add")
    assert Operator.from_function(torch.relu) is None


def test_effects_of_an_overloaded_operator_are_those_of_the_called_overload() -> None:
    x = torch.ones(2)
    assert find_written_arguments(torch.ops.aten.add, (x, x), {}).values == ()
    assert find_written_arguments(torch.ops.aten.add_, (x, x), {}).values[0] is x
    assert find_written_arguments(torch.ops.aten.add, (x, x), {"out": x}) == find_written_arguments(
        torch.ops.aten.add.out, (x, x), {"out": x}
    )
    assert find_written_arguments(torch.ops.aten.add, (x, x), {"out": x}).buffer_keywords == ("out",)


def test_schema_of_finds_the_overload_by_its_arguments() -> None:
    x = torch.ones(2)
    add = torch.ops.aten.add
    assert find_schema(add.out, (), {}).overload_name == "out"
    assert find_schema(add, (x, x), {"out": x}).overload_name == "out"
    assert find_schema(add, (x, x), {"none": x}) is None


def test_schema_of_an_operator_of_higher_order_is_unknown() -> None:
    if not hasattr(torch.ops.higher_order, "cond"):
        pytest.skip("this torch has no torch.ops.higher_order.cond")
    assert find_schema(torch.ops.higher_order.cond, (True, None, None, ()), {}) is None


def test_errors_of_the_recorder_do_not_reach_the_training(
    operators: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("probe_pytorch.capture.functions.find_written_arguments", fail)
    monkeypatch.setattr("probe_pytorch.capture.uninitialized_memory.UninitializedMemory.add_storage", fail)
    run = Recording(tmp_path / "run", level="L1")
    run.start()
    assert torch.equal(operators.scaled(torch.empty(2).fill_(1), 2.0), torch.full((2,), 2.0))
    run.stop()
    run.finish()
    assert f"{SPACE}.scaled.0.forward" in run.records() and "a defect" in run.errors
