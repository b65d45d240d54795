"""Level L1: a function mode that records the calls of torch's functions.

The mode is at the bottom of the stack of modes, so that leaving a mode of the user does not remove it, and
so that it can be removed while others stay. Calls made inside a recorded call are not seen, because torch
disables the mode there. A Python function that is not recorded itself is run from a copy in which the mode stays
enabled. Recorded Python functions are run in the same way if the calls inside them are recorded as well.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType, FrameType
from typing import Any

import torch
from probe_recording.api import stack_of
from probe_recording.capture.threads import Threads
from probe_recording.sites import is_operator
from torch.overrides import TorchFunctionMode, handle_torch_function

from probe_pytorch import compat, compat_hooks, seeds
from probe_pytorch.capture import collectives
from probe_pytorch.capture.call_form import call_form, is_reflected, restore_arguments
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.callers import ORIGINAL_ATTRIBUTE, wrap_with_caller
from probe_pytorch.capture.function_patches import AutogradFunctions
from probe_pytorch.capture.names import DISPATCHER, CapturedApi, Names
from probe_pytorch.capture.operators import (
    ATEN,
    NO_WRITTEN_ARGUMENTS,
    OUTPUT_BUFFER_KEYWORDS,
    CustomOperators,
    Operator,
    find_written_arguments,
)
from probe_pytorch.capture.uninitialized_memory import ALLOCATORS

HANDLER_CODE = handle_torch_function.__code__
LOGGER_FILE = "torch/distributed/c10d_logger.py"
"""The file of the decorator around each collective, which does not count as its caller."""

DTENSOR_DIRECTORY = "/torch/distributed/tensor/"
"""The directory of DTensor's implementation, whose own operators on shards are not recorded."""

TENSOR_METHODS_FILE = torch._tensor.__file__
"""The file of Tensor's methods in Python; operators such as ``**`` call a function ``wrapped`` there."""

SEEDS_FILE = seeds.__file__
"""The file of the functions that ``rm_dropout`` puts around dropout, which do not count as callers."""

OPERATOR_CALL_FILES = ("torch/_ops.py", "torch/_library/custom_ops.py")
"""The files of the functions that call operators of ``torch.ops``, which do not count as callers."""

RECURRENT_FILE = torch.nn.modules.rnn.__file__
NOT_RECORDED = CapturedApi(None)
"""A mark for C functions that no list names, so that later calls skip the search."""

_BUILTIN_TYPES = (type(len), type(torch.Tensor.shape.__get__), type(torch.Tensor.dim))  # type: ignore[attr-defined]
_NUMBERS = frozenset({int, float, complex, bool})
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class FunctionCapture(TorchFunctionMode):
    """A function mode that records the calls of named functions.

    Args:
        names: The names of everything that is recorded.
        threads: The state of the threads.
        custom: The custom operators to record; None to record neither these nor autograd functions.
        records_inside: True to record the calls inside of recorded Python functions as well.
    """

    def __init__(
        self,
        names: Names,
        threads: Threads,
        custom: CustomOperators | None = None,
        records_inside: bool = False,
    ) -> None:
        super().__init__()
        self._records_inside = records_inside
        self._restore_indexing: Callable[[], None] | None = None
        self._calls: TorchCallRecorder | None = None
        self._custom = custom
        self._functions = None if custom is None else AutogradFunctions(custom.families, self._sees_calls)
        self._names = names
        self._by_function = names.by_function
        self._threads = threads
        self._descending: list[Any] = []
        self._open_names: list[str] = []

    @property
    def calls(self) -> TorchCallRecorder | None:
        """The recorder of calls; None to record nothing."""
        return self._calls

    @calls.setter
    def calls(self, calls: TorchCallRecorder | None) -> None:
        self._calls = calls
        if self._functions is not None:
            self._functions.calls = calls

    # -- installation ----------------------------------------------------------------------

    def install(self) -> None:
        """Put the mode on this thread's stack of modes."""
        if self._restore_indexing is None:
            self._restore_indexing = compat_hooks.pass_on_indexing()
        if self not in compat.list_function_modes():
            compat.enter_below(self)
        if self._functions is not None:
            self._functions.install()

    def remove(self) -> None:
        """Remove the mode from this thread's stack, and no other mode."""
        compat.take_out(self)
        restore, self._restore_indexing = self._restore_indexing, None
        if restore is not None:
            restore()
        if self._functions is not None:
            self._functions.remove()

    def _sees_calls(self) -> bool:
        """Return True outside of recorded calls, in a thread whose calls this mode receives."""
        return not self._threads.inside and self in compat.list_function_modes()

    # -- calls -----------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the call of ``func``, which torch passes here instead of running it."""
        kwargs = kwargs or {}
        calls = self._calls
        frame = caller = sys._getframe(1)
        if caller.f_code is HANDLER_CODE and caller.f_back is not None and caller.f_back.f_back is not None:
            caller = caller.f_back.f_back  # the caller of a Python function that passed itself to the mode
        if calls is None or self._threads.inside or not calls.session.active:
            return wrap_with_caller(caller, func)(*args, **kwargs)
        try:
            api = self._by_function.get(func)
        except TypeError:
            api = None
        if api is NOT_RECORDED:
            return wrap_with_caller(caller, func)(*args, **kwargs)
        while frame.f_code.co_name == "__torch_function__" and frame.f_back is not None:
            frame = frame.f_back  # another mode passed the call on
        if DTENSOR_DIRECTORY in frame.f_code.co_filename:
            return wrap_with_caller(caller, func)(*args, **kwargs)
        if frame.f_code is HANDLER_CODE and frame.f_back is not None:
            return self._record_python_function(calls, api, func, types, args, kwargs, frame.f_back)
        if api is None:
            return self._run_unnamed(calls, wrap_with_caller(caller, func), func, args, kwargs, frame)
        name: str | None = api.name
        if api.has_operator and is_operator(frame, func.__name__):
            name = api.operator
            if api.reflected is not None and len(args) > 1 and type(args[1]) in _NUMBERS:
                name = api.reflected if is_reflected(frame, args[0]) else name
        elif (hidden := self._names.by_code.get(id(frame.f_code))) is not None:
            name, frame = hidden, frame.f_back or frame
        if api.recurrent is not None and frame.f_code.co_filename == RECURRENT_FILE:
            name = api.recurrent
        if name is None or (self._records_inside and self._is_part(name, func, frame)):
            return wrap_with_caller(caller, func)(*args, **kwargs)
        filled = OUTPUT_BUFFER_KEYWORDS if "out" in kwargs else api.filled
        in_place = api.in_place or "out" in kwargs
        called = wrap_with_caller(caller, func)
        return calls.record(name, called, args, kwargs, stack_of(frame), None, in_place, filled)

    def _record_python_function(
        self,
        calls: TorchCallRecorder,
        api: CapturedApi | None,
        func: Any,
        types: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        """Record a Python function of torch, running in ``frame``, that passed itself to the mode."""
        code = frame.f_code
        site = frame.f_back or frame
        name = api.name if api else None
        while site.f_back is not None and (
            site.f_code.co_filename.endswith(LOGGER_FILE) or site.f_code.co_filename == SEEDS_FILE
        ):
            site = site.f_back
        if site.f_code is DISPATCHER:
            site = site.f_back or site
            name = self._names.dispatched.get(id(code), name)
        elif id(code) in self._names.dispatched and getattr(func, "__code__", None) is not code:
            name = self._names.dispatched[id(code)]
        if api is not None and api.operator is not None:
            name = api.operator  # an operator written in Python, such as Tensor.__pow__
            if code.co_name not in ("wrapped", api.operator.rpartition(".")[2]):
                name = api.name
        if name is None:
            return self._descend(func, types, args, kwargs, site)
        is_method = name.startswith("Tensor.")
        written = self._restore_written_arguments(frame, func, is_method, args, kwargs, site)
        called = wrap_with_caller(site, func)
        if self._records_inside:
            called = self._open_function(self._find_running_function(frame, func), types, site, name) or called
        if name.startswith("Distributed."):
            return collectives.record(calls, self._names, name, called, args, kwargs, stack_of(site), written)
        in_place = bool(api and api.in_place) or kwargs.get("inplace") is True
        return calls.record(name, called, args, kwargs, stack_of(site), written, in_place)

    def _restore_written_arguments(
        self, frame: FrameType, func: Any, is_method: bool, args: tuple[Any, ...], kwargs: dict[str, Any],
        site: FrameType,
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
        """Return the arguments as the line of ``site`` wrote them."""
        if is_operator(site, ""):
            return args, kwargs
        function = self._find_running_function(frame, func)
        if function is None:
            return args, kwargs
        return restore_arguments(function, call_form(site), is_method, args, kwargs)

    def _find_running_function(self, frame: FrameType, func: Any) -> Any:
        """Return the Python function that runs in ``frame`` and passed on ``func``; None if it is unknown."""
        for function in (inspect.unwrap(func), frame.f_globals.get(frame.f_code.co_name)):
            if getattr(function, "__code__", None) is frame.f_code:
                return function
        return None

    def _run_unnamed(
        self, calls: TorchCallRecorder, called: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:  # fmt: skip
        """Run a function that no list names; record it if it is an operator of ``torch.ops``."""
        operator = Operator.from_function(func)
        if operator is None:
            if type(func) in _BUILTIN_TYPES:
                if func in ALLOCATORS:
                    tensor = called(*args, **kwargs)
                    calls.note_allocation(func.__name__, tensor)
                    return tensor
                self._by_function[func] = NOT_RECORDED
            return called(*args, **kwargs)
        while frame.f_back is not None and frame.f_code.co_filename.endswith(OPERATOR_CALL_FILES):
            frame = frame.f_back
        if DTENSOR_DIRECTORY in frame.f_code.co_filename:
            return called(*args, **kwargs)
        stack = stack_of(frame)
        if operator.namespace != ATEN:
            if self._custom is None:
                return called(*args, **kwargs)
            self._custom.note_call(operator)
            if not self._custom.is_recorded(operator):
                return called(*args, **kwargs)
            prefix = f"{operator.namespace}.{operator.name}"
            written = calls.attempt(prefix, partial(find_written_arguments, func, args, kwargs), NO_WRITTEN_ARGUMENTS)
            return calls.record(
                prefix, called, args, kwargs, stack, filled=written.buffer_keywords, written=written.values
            )
        if not self._names.aten(operator.name):
            return called(*args, **kwargs)
        return calls.record(
            f"Aten.{operator.name}", called, args, kwargs, stack, None, operator.name.endswith("_"),
            OUTPUT_BUFFER_KEYWORDS if "out" in kwargs else (),
        )  # fmt: skip

    def _descend(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: FrameType) -> Any:
        """Run a Python function that is not recorded, so that the calls inside it are recorded."""
        opened = self._open_function(func, types, site) or wrap_with_caller(site, func)
        return opened(*args, **kwargs)

    def _is_part(self, name: str, func: Any, frame: FrameType) -> bool:
        """Return True if a call is an implementation detail of the recorded call that surrounds it.

        The call has the same name, such as the C++ method that a Python method calls, or uses a function of ``torch``
        by another name than ``torch``.
        """
        if self._open_names and self._open_names[-1] == name:
            return True
        if frame.f_code.co_name == "wrapped" and frame.f_code.co_filename == TENSOR_METHODS_FILE:
            return True
        return name.startswith("Torch.") and func.__name__ in find_indirect_names(frame.f_code)

    def _open_function(self, func: Any, types: Any, site: FrameType, name: str = "") -> Callable[..., Any] | None:
        """Return a Python function in a form inside which calls are recorded; None if there is none.

        Args:
            func: The function.
            types: The types of its tensors.
            site: The frame that calls it.
            name: The name of its record; empty if it has none.
        """
        inner = None
        if func not in self._descending and _PLAIN.issuperset(types):
            inner = compat.drop_dispatch_check(getattr(func, ORIGINAL_ATTRIBUTE, func))
        if inner is None:
            return None

        def run(*args: Any, **kwargs: Any) -> Any:
            self._descending.append(func)
            self._open_names.append(name)
            try:
                with self:
                    return wrap_with_caller(site, inner)(*args, **kwargs)
            finally:
                self._descending.pop()
                self._open_names.pop()

        return run


# -- calls inside of torch's own functions that go around the public names, such as ``_VF.dropout`` -


TORCH_ALIASES = ("_VF", "_VariableFunctions")
"""Objects of torch that hold the functions of ``torch`` a second time."""


@lru_cache(maxsize=1024)
def find_indirect_names(code: CodeType) -> frozenset[str]:
    """Return the names of the functions of ``torch`` that code reaches by other objects than ``torch``."""
    names = set()
    last = ""
    for instruction in dis.get_instructions(code):
        if last in TORCH_ALIASES and instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            names.add(str(instruction.argval))
        if instruction.opname.startswith("LOAD_"):
            last = str(instruction.argval)
        elif instruction.opname not in ("CACHE", "PUSH_NULL"):
            last = ""
    return frozenset(names)
