"""Wrappers around the functions that no mode sees, which are removed again at stop.

These are collectives of torch.distributed that do not pass themselves to a mode, Python functions of
torch_npu and mindspeed, and functions that the user registers. Nothing else of torch is replaced.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from probe_recording.api import stack_of
from probe_recording.capture.attribute_patches import AttributePatches
from probe_recording.capture.threads import Threads

from probe_pytorch import compat_hooks
from probe_pytorch.capture import collectives
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.callers import TORCH_DIRECTORY, wrap_with_caller
from probe_pytorch.capture.families import AUTOGRAD_SCOPE, Families
from probe_pytorch.capture.names import Names, Patch


class Patches:
    """The wrapped functions.

    Args:
        names: The names of everything that is recorded.
        threads: The state of the threads.

    Attributes:
        calls: The recorder of calls; None to record nothing.
    """

    def __init__(self, names: Names, threads: Threads) -> None:
        self.calls: TorchCallRecorder | None = None
        self._names = names
        self._threads = threads
        self._patches = list(names.patches)
        self._wrappers = AttributePatches()

    def add(self, patch: Patch) -> None:
        """Add a function to wrap at every start, and wrap it now if the recording is under way."""
        self._patches.append(patch)
        if self._wrappers or self.calls is not None:
            self._place(patch)

    def drop(self, holder: Any, attribute: str) -> bool:
        """Unwrap a function that was added and forget it; return False if it was not added."""
        dropped = [p for p in self._patches if p.holder is holder and p.attribute == attribute]
        for patch in dropped:
            self._patches.remove(patch)
            self._wrappers.restore(holder, attribute)
        return bool(dropped)

    def install(self) -> None:
        """Wrap the functions."""
        if not self._wrappers:
            for patch in self._patches:
                self._place(patch)
            if any(_is_collective(patch) for patch in self._patches):
                operation = torch.distributed.P2POp
                self._wrappers.replace(operation, "__init__", _keep_originals(operation.__init__))

    def remove(self) -> None:
        """Restore the original functions."""
        self._wrappers.restore_all()

    def _place(self, patch: Patch) -> None:
        plain = inspect.getattr_static(patch.holder, patch.attribute)
        wrapper: Any
        if isinstance(plain, (staticmethod, classmethod)):
            wrapper = type(plain)(self._wrap(patch, plain.__func__))
        else:
            is_class = isinstance(patch.holder, type)
            wrapper = self._wrap(patch, plain if is_class else getattr(patch.holder, patch.attribute))
        self._wrappers.replace(patch.holder, patch.attribute, wrapper)

    def _wrap(self, patch: Patch, original: Callable[..., Any]) -> Callable[..., Any]:
        threads = self._threads
        is_collective = _is_collective(patch)

        @functools.wraps(original)
        def record_call(*args: Any, **kwargs: Any) -> Any:
            calls = self.calls
            caller = sys._getframe(2 if is_collective else 1)
            called = wrap_with_caller(caller, original)
            if calls is None or threads.inside or not calls.session.active:
                return called(*args, **kwargs)
            stack = stack_of(caller)
            inner = threads.outermost(called)
            if is_collective:
                return collectives.record(calls, self._names, patch.name, inner, args, kwargs, stack)
            return calls.record(patch.name, inner, args, kwargs, stack)

        return _SameFunction(record_call, original) if is_collective else record_call


def _is_collective(patch: Patch) -> bool:
    return patch.name.startswith("Distributed.")


def _keep_originals(initialize: Callable[..., None]) -> Callable[..., None]:
    """Return an ``__init__`` of ``P2POp`` that stores the original of a wrapped operation.

    ``batch_isend_irecv``, which is recorded itself, tells sends from receives by the identity of the operation.
    """

    @functools.wraps(initialize)
    def initialize_with_originals(*args: Any, **kwargs: Any) -> None:
        initialize(*map(_unwrap, args), **{name: _unwrap(value) for name, value in kwargs.items()})

    return initialize_with_originals


def _unwrap(value: Any) -> Any:
    return value.original if isinstance(value, _SameFunction) else value


class _SameFunction:
    """A wrapped collective that equals the original, which ``P2POp`` requires of its operation."""

    def __init__(self, recorded: Callable[..., Any], original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._recorded = recorded
        self.original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the collective and record the call."""
        return self._recorded(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.original

    def __hash__(self) -> int:
        return hash(self.original)

    def __reduce__(self) -> Any:
        return pkgutil.resolve_name, (f"{self.original.__module__}:{self.original.__qualname__}",)


# -- calls of ``torch.autograd.Function.apply``, which no mode of torch sees ------------------------


FRAMEWORKS = ("torch", "functorch")
"""Packages whose functions are part of torch: they are recorded, if at all, as the API that calls them."""


class AutogradFunctions:
    """A capture of the calls of autograd functions that are not torch's own.

    The calls inside the forward of such a function are recorded as well.

    Args:
        families: The families of calls of the recording.
        sees_calls: A function that returns True where calls of functions would be recorded: not inside of
            other recorded calls.

    Attributes:
        calls: The recorder of calls; None to record nothing.
    """

    def __init__(self, families: Families, sees_calls: Callable[[], bool]) -> None:
        self.calls: TorchCallRecorder | None = None
        self._families = families
        self._sees_calls = sees_calls
        self._restore: Callable[[], None] | None = None

    def install(self) -> None:
        """Replace the method that runs autograd functions."""
        if self._restore is None:
            self._restore = compat_hooks.replace_apply(self._apply)

    def remove(self) -> None:
        """Restore the method."""
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()

    def _apply(
        self,
        function: type[Any],
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
    ) -> Any:
        """Run an autograd function and record the call.

        Args:
            function: The subclass of ``torch.autograd.Function``.
            run: The function that runs it.
            args: The arguments of its forward.
            kwargs: The keyword arguments of its forward.
            caller: The frame that calls it: of ``Function.apply`` if that is written in Python, else of its
                caller.
        """
        calls = self.calls
        called = wrap_with_caller(caller, run)
        if calls is None or not calls.session.active or _is_of_torch(function) or not self._sees_calls():
            return called(*args, **kwargs)
        self._families.functions.add(AUTOGRAD_SCOPE)
        is_of_torch = caller.f_code.co_filename.startswith(TORCH_DIRECTORY)
        stack = stack_of((caller.f_back if is_of_torch else None) or caller)
        return calls.record(f"{AUTOGRAD_SCOPE}.{function.__name__}", called, args, kwargs, stack)


def _is_of_torch(function: type[Any]) -> bool:
    return function.__module__.partition(".")[0] in FRAMEWORKS
