"""Calls of ``torch.autograd.Function.apply``, which no mode of torch sees.

Scripts assign ``apply`` to other names (``fused_norm = FusedNorm.apply``), often before the recording starts.
``compat_hooks.replace_apply`` sees their calls as well.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from probe_recording.api import stack_of

from probe_pytorch import compat_hooks
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.callers import TORCH_DIRECTORY, wrap_with_caller
from probe_pytorch.capture.families import AUTOGRAD_SCOPE, Families

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
