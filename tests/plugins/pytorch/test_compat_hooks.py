"""Uses of torch's private API for hooks and autograd functions, on the torch that is installed."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import compat_hooks
from torch.overrides import TorchFunctionMode

VERSION = f"torch {torch.__version__}"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, factor: int) -> torch.Tensor:
        return x * factor


class WithDefault(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, factor: int = 2) -> torch.Tensor:
        return x * factor

    @staticmethod
    def setup_context(*_: Any) -> None:
        return None


def run(program: str, *arguments: str) -> str:
    """Run a program in a process of its own and return its output."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (VERSION, done.stderr)
    return done.stdout


def test_dicts_of_a_handle_hold_its_hook() -> None:
    module = torch.nn.Linear(1, 1)
    handle = module.register_forward_hook(lambda *_: None, with_kwargs=True, always_call=True)
    found = compat_hooks.list_hook_dicts(handle)
    expected = (
        module._forward_hooks,
        module._forward_hooks_with_kwargs,
        module._forward_hooks_always_called,
    )
    assert {id(hooks) for hooks in found} == {id(hooks) for hooks in expected}, VERSION
    assert all(handle.id in hooks for hooks in found), VERSION


@pytest.mark.parametrize("is_leaf", [True, False])
def test_saving_a_tensor_does_not_warn_about_its_hook(is_leaf: bool) -> None:
    tensor = torch.ones(2, requires_grad=True)
    tensor = tensor if is_leaf else tensor * 2
    gradients: list[torch.Tensor] = []
    handle = compat_hooks.register_hook(tensor, lambda gradient: gradients.append(gradient))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(tensor, io.BytesIO())
    tensor.sum().backward(retain_graph=True)
    assert len(gradients) == 1, VERSION
    handle.remove()
    tensor.sum().backward()
    assert len(gradients) == 1, VERSION


class Noting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_indexing_is_passed_to_the_mode_of_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noting, "__module__", "probe_pytorch.capture")
    tensor, index = torch.tensor([0.0, 1.0, 3.0, 3.0]), torch.tensor([3])
    undo = compat_hooks.pass_on_indexing()
    with Noting() as mode:
        tensor[:2] = tensor[2:]
        found = [tensor[index], tensor[0], tensor[..., 1]]
    undo()
    assert mode.names == ["__getitem__", "__setitem__", *["__getitem__"] * 3], VERSION
    assert [value.item() for value in found] == [3.0, 3.0, 3.0]
    assert not {"__getitem__", "__setitem__"} & vars(torch.Tensor).keys(), VERSION


STEPS = """\
    import sys
    import torch
    from probe_pytorch import compat_hooks

    parameters = [torch.nn.Parameter(torch.ones(2))]
    existing = torch.optim.SGD(parameters, lr=0.1)
    calls = []

    def register():
        return compat_hooks.register_step_hooks(
            lambda *_: calls.append("before"), lambda *_: calls.append("after")
        )

    if sys.argv[1] == "before":
        handles = register()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    if sys.argv[1] == "after":
        handles = register()
    for optimizer in (existing, torch.optim.AdamW(parameters), torch.optim.RAdam(parameters)):
        parameters[0].sum().backward()
        optimizer.step()
    print(*calls)
    for handle in handles:
        handle.remove()
    existing.step()
    print(len(calls))
"""


@pytest.mark.parametrize("registered", ["before", "after"])
def test_optimizers_run_step_hooks_that_are_registered_around_the_first_compilation(registered: str) -> None:
    assert run(STEPS, registered) == "before after " * 2 + "before after\n6\n", VERSION


def receive_into(calls: list[Any]) -> Any:
    def receive(function: type[Any], run: Any, args: Any, kwargs: Any, caller: Any) -> Any:
        calls.append((function, args[1], kwargs))
        return run(*args, **kwargs)

    return receive


def test_replaced_apply_sees_functions_bound_before() -> None:
    bound, calls = Doubled.apply, []
    undo = compat_hooks.replace_apply(receive_into(calls))
    assert torch.equal(bound(torch.ones(2), 2), torch.full((2,), 2.0))
    undo()
    bound(torch.ones(2), 3)
    assert calls == [(Doubled, 2, {})], VERSION


def test_replaced_apply_receives_default_values() -> None:
    calls: list[Any] = []

    def receive(function: type[Any], run: Any, args: Any, kwargs: Any, caller: Any) -> Any:
        calls.append((function, args[1:], kwargs))
        return run(*args, **kwargs)

    undo = compat_hooks.replace_apply(receive)
    assert torch.equal(WithDefault.apply(torch.ones(2)), torch.full((2,), 2.0))
    undo()
    if calls == [(WithDefault, (), {})]:
        pytest.skip("Function.apply of this torch passes no default values on")
    assert calls == [(WithDefault, (2,), {})], VERSION


MODULE = """\
    import torch

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

    doubled = Doubled.apply
"""
PROGRAM = """\
    import sys
    sys.path.insert(0, sys.argv[1])
    import bound_names
    import torch
    from probe_pytorch import compat_hooks

    calls = []
    compat_hooks.replace_apply(lambda function, run, args, kwargs, caller: calls.append(caller.f_code.co_name))
    bound_names.doubled(torch.ones(2))
    print(calls)
"""


def test_replaced_apply_sees_functions_that_a_module_bound_before_the_import(tmp_path: Path) -> None:
    (tmp_path / "bound_names.py").write_text(textwrap.dedent(MODULE))
    assert run(PROGRAM, str(tmp_path)) in ("['<module>']\n", "['apply']\n"), VERSION
