"""Functions that are wrapped while a recording is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import compat_hooks
from support.runs.recording import recording
from torch.utils.checkpoint import checkpoint

torch = pytest.importorskip("torch")
from support.runs.recording import recording  # noqa: E402


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of gloo with this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("name", ["isend", "irecv"])
def test_operations_of_a_batch_are_the_originals(tmp_path: Path, name: str) -> None:
    """``batch_isend_irecv`` asks whether the operation of a ``P2POp`` is ``isend``."""
    distributed = torch.distributed
    original, initialize = getattr(distributed.distributed_c10d, name), distributed.P2POp.__init__
    with recording(tmp_path / "run", level="L1") as found:
        for _ in range(2):
            found.start()
            tensor = torch.ones(2)
            operations = [
                distributed.P2POp(getattr(distributed, name), tensor, 0),
                distributed.P2POp(op=getattr(distributed, name), tensor=tensor, peer=0),
            ]
            assert [operation.op is original for operation in operations] == [True, True]
            found.stop()
            found.step()
    assert distributed.P2POp.__init__ is initialize


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        context.factor = factor
        return torch.mul(x, factor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return gradient * context.factor, None


class Split(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.set_materialize_grads(False)
        return x + y, x - y

    @staticmethod
    def backward(context: Any, first: Any, second: Any) -> tuple[Any, ...]:  # type: ignore[override]
        return first, first if second is None else first - second


bound_early = Scaled.apply
"""The form in which most scripts call their functions."""


def test_calls_are_recorded_forward_and_backward(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        y = bound_early(x, 3.0)
        Scaled.apply(y).sum().backward()
        run.stop()
    records = run.records()
    assert [name for name in records if name.startswith("Autograd")] == [
        "Autograd.Scaled.0.forward", "Autograd.Scaled.1.forward",
        "Autograd.Scaled.1.backward", "Autograd.Scaled.0.backward",
    ]  # fmt: skip
    assert records["Autograd.Scaled.0.forward"]["input_args"][1]["value"] == 3.0
    assert records["Autograd.Scaled.0.forward"]["output"][0]["Max"] == 3.0
    assert records["Autograd.Scaled.0.backward"]["input"][0]["Max"] == 2.0
    assert records["Autograd.Scaled.0.backward"]["output"][0]["Max"] == 6.0
    assert __file__ in run.stacks()["Autograd.Scaled.0.forward"][0]
    assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 6.0))


def test_calls_inside_of_the_forward_are_recorded_before_the_function(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        bound_early(torch.ones(3))
        run.stop()
    assert list(run.records()) == ["Torch.mul.0.forward", "Autograd.Scaled.0.forward"]


def test_gradients_that_are_not_computed_are_not_recorded(tmp_path: Path) -> None:
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        Split.apply(x, y)[0].sum().backward()
        run.stop()
    gradients = run.records()["Autograd.Split.0.backward"]
    assert [leaf["Max"] for leaf in gradients["input"]] == [1.0]
    assert [leaf["Max"] for leaf in gradients["output"]] == [1.0, 1.0]


def test_functions_of_torch_are_not_recorded(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        checkpoint(torch.relu, x, use_reentrant=True).sum().backward()
        run.stop()
    assert not [name for name in run.records() if name.startswith("Autograd")]


def test_calls_under_transforms_pass_through(tmp_path: Path) -> None:
    class Negated(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return -x

        @staticmethod
        def setup_context(context: Any, inputs: Any, output: Any) -> None:
            return None

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return -gradient

    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        result = torch.func.vmap(Negated.apply)(torch.ones(2, 2))
        run.stop()
    assert torch.equal(result, torch.full((2, 2), -1.0))


def test_calls_of_other_threads_are_not_recorded(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        thread = threading.Thread(target=lambda: bound_early(torch.ones(3)))
        thread.start()
        thread.join()
        torch.relu(torch.ones(3))
        run.stop()
    assert list(run.records()) == ["Torch.relu.0.forward"]


def test_apply_is_restored_after_each_step(tmp_path: Path) -> None:
    base: Any = torch.autograd.Function.__mro__[1]

    def state() -> tuple[Any, ...]:
        return base.apply, torch.autograd.Function.apply, len(compat_hooks._receivers)

    with recording(tmp_path / "run", level="L1") as run:
        before = state()
        for _ in range(2):
            run.start()
            assert state() != before
            run.stop()
            assert state() == before
            run.step()


def test_an_exception_in_the_forward_leaves_no_record(tmp_path: Path) -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("broken")

    with recording(tmp_path / "run", level="L1") as run:
        run.start()
        try:
            Broken.apply(torch.ones(1))
        except ValueError as error:
            assert str(error) == "broken"
        torch.relu(torch.ones(1))
        run.stop()
    assert list(run.records()) == ["Torch.relu.0.forward"]


def test_level_L0_records_no_functions(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L0") as run:
        run.start(torch.nn.Sequential(torch.nn.Linear(2, 2)))
        bound_early(torch.ones(3))
        run.stop()
    assert "families" not in run.head()["probe"]
