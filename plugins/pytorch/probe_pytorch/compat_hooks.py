"""Hooks of tensors and optimizers, and calls that modes do not see, by torch's private API.

As in ``compat.py``, each use has a test that names the version of torch.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from types import BuiltinMethodType, ClassMethodDescriptorType, FrameType, SimpleNamespace
from typing import Any

import torch
from torch import _C
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils import hooks

STEP_HOOKS_VERSION = (2, 6)
"""The first torch known to keep the hooks of optimizers when its compiler is used; torch 2.1 drops them."""

Hook = Callable[[torch.Tensor], Any]
ApplyReceiver = Callable[[type[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any], FrameType], Any]


def list_hook_dicts(handle: Any) -> list[Any]:
    """Return the dictionaries that hold the hook of a handle, without those that are gone."""
    dicts = (reference() for reference in (handle.hooks_dict_ref, *handle.extra_dict_ref))
    return [hooks for hooks in dicts if hooks is not None]


# -- tensors -----------------------------------------------------------------------------------


class _UnserializableKey(int):
    """A key of a hook that is never saved; torch 2.1 looks for the mark at the key instead of the hook."""

    __torch_unserializable__ = True


def register_hook(tensor: torch.Tensor, hook: Hook) -> Any:
    """Register a hook for the gradient of a tensor and return its handle.

    Saving or copying the tensor does not warn about the hook.
    """
    handle = tensor.register_hook(hooks.unserializable_hook(hook))
    if _WARNS_ABOUT_MARKED_HOOKS:
        registered: Any = tensor._backward_hooks
        registered[_UnserializableKey(handle.id)] = registered.pop(handle.id)
    return handle


def _warns_about_marked_hooks() -> bool:
    """Return True if torch warns about unserializable hooks, as torch 2.1 does."""
    tensor = SimpleNamespace(_backward_hooks={0: hooks.unserializable_hook(lambda _: None)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hooks.warn_if_has_hooks(tensor)
    return bool(caught)


_WARNS_ABOUT_MARKED_HOOKS = _warns_about_marked_hooks()


# -- optimizers --------------------------------------------------------------------------------


def register_step_hooks(before: Callable[..., None] | None, after: Callable[..., None] | None) -> list[Any]:
    """Register hooks that run before and after each step of each optimizer, and return their handles."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < STEP_HOOKS_VERSION:
        _keep_step_hooks()
    handles = [] if before is None else [register_optimizer_step_pre_hook(before)]
    return handles if after is None else [*handles, register_optimizer_step_post_hook(after)]


def _keep_step_hooks() -> None:
    """Make the optimizers of torch run hooks of steps, also after the compiler was used.

    The first use of the compiler of torch 2.1 replaces each ``step`` that has the mark ``hooked`` by its
    ``__wrapped__``, which runs no hooks, and marks all others, which therefore never run hooks.
    """
    wrap: Any = torch.optim.Optimizer.profile_hook_step
    code = wrap(lambda: None).__code__
    for kind in vars(torch.optim).values():
        if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
            continue
        step: Any = kind.step
        if getattr(step, "__code__", None) is not code:
            step = wrap(step)
            step.hooked = True
            kind.step = step  # type: ignore[method-assign]
        if hasattr(step, "__wrapped__"):
            step.__signature__ = inspect.signature(step)
            del step.__wrapped__


# -- indexing ----------------------------------------------------------------------------------


def pass_on_indexing() -> Callable[[], None]:
    """Pass ``tensor[index]`` to the function mode of the recorder; return a function that undoes this.

    torch 2.1 passes it to modes only for some indices. Nothing is passed on while the program has function
    modes of its own, which would receive it, too.
    """
    if _PASSES_ON_INDEXING:
        return lambda: None
    methods = {name: _create_forwarding_method(name) for name in ("__getitem__", "__setitem__")}
    for name, method in methods.items():
        setattr(torch.Tensor, name, method)

    def undo() -> None:
        for name, method in methods.items():
            if vars(torch.Tensor).get(name) is method:
                delattr(torch.Tensor, name)

    return undo


def _create_forwarding_method(name: str) -> Callable[..., Any]:
    original = getattr(torch.Tensor.__base__, name)

    def method(self: torch.Tensor, *args: Any) -> Any:
        if _has_no_mode_of_the_program():
            return handle_torch_function(original, (self,), self, *args)
        return original(self, *args)

    method.__code__ = method.__code__.replace(co_name=name)
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    return method


def _has_no_mode_of_the_program() -> bool:
    modes = [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]
    internal_packages = ("probe_pytorch", "torch")
    is_of_program = any(type(mode).__module__.partition(".")[0] not in internal_packages for mode in modes)
    return bool(_C._is_torch_function_mode_enabled()) and not is_of_program


def _passes_on_indexing() -> bool:
    class TorchCallCounter(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    tensor, mode = torch.ones(1), TorchCallCounter()
    with mode:
        tensor[0]
    return mode.calls > 0


_PASSES_ON_INDEXING = _passes_on_indexing()


# -- autograd functions ------------------------------------------------------------------------


def replace_apply(receiver: ApplyReceiver) -> Callable[[], None]:
    """Pass calls of ``torch.autograd.Function.apply`` to ``receiver``; return a function that undoes this.

    It sees calls by an ``apply`` that a script bound to a name of its own, too. Since torch 2.15, it does not
    see those that were bound before this module was imported, except names of modules.

    Args:
        receiver: It receives the class, the function that runs it, the arguments, the keyword arguments and
            the frame that calls the function.
    """
    return _receive_of_class(receiver) if _APPLY_OF_TORCH is not None else _receive_of_base(receiver)


def _receive_of_base(receiver: ApplyReceiver) -> Callable[[], None]:
    """Replace ``super().apply``, in which ``Function.apply`` ends before torch 2.15."""
    base: Any = torch.autograd.function._SingleLevelFunction

    def apply(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        return receiver(cls, super(base, cls).apply, args, kwargs, sys._getframe(1))

    method = classmethod(apply)
    base.apply = method

    def undo() -> None:
        if vars(base).get("apply") is method:
            del base.apply

    return undo


def _receive_of_class(receiver: ApplyReceiver) -> Callable[[], None]:
    _receivers.append(receiver)

    def undo() -> None:
        if receiver in _receivers:
            _receivers.remove(receiver)

    return undo


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an autograd function, or pass the call to the receiver."""
    run = _APPLY_OF_TORCH.__get__(None, cls)
    if not _receivers or _C._are_functorch_transforms_active():
        return run(*args, **kwargs)
    function: Any = torch.autograd.function
    if function._is_setup_context_defined(cls.setup_context):  # as torch does: forward has no context
        args, kwargs = function._bind_default_args(cls.forward, args, kwargs)
    return _receivers[-1](cls, run, args, kwargs, sys._getframe(1))


def _replace_apply_in_c() -> Any:
    """Replace ``Function.apply`` if it is written in C, and return it; return None for one in Python.

    A bound method in C cannot be replaced later. Therefore this is done once, before scripts bind
    ``apply`` to names, and names of modules that were imported earlier are bound again.
    """
    original = vars(torch.autograd.Function).get("apply")
    if not isinstance(original, ClassMethodDescriptorType):
        return None
    replacement: Any = _apply
    replacement.__name__, replacement.__qualname__ = "apply", "Function.apply"
    torch.autograd.Function.apply = classmethod(replacement)  # type: ignore[method-assign, assignment]
    kind: Any = torch.autograd.function.FunctionMeta
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            function: Any = getattr(value, "__self__", None) if type(value) is BuiltinMethodType else None
            if type(function) is kind and value.__name__ == "apply":
                setattr(module, name, function.apply)
    return original


_receivers: list[ApplyReceiver] = []
_APPLY_OF_TORCH: Any = _replace_apply_in_c()
