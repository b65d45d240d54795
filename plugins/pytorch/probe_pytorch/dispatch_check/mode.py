"""The dispatch mode that sees every operator of the block, in the forward and in the backward."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any, NamedTuple

import torch
from probe_precheck.model import BACKWARD, FORWARD
from probe_recording.sites import STAND_IN
from torch.utils._python_dispatch import TorchDispatchMode

from probe_pytorch import compat, compat_dispatch
from probe_pytorch.capture.callers import TORCH_DIRECTORY, wrap_with_caller
from probe_pytorch.dispatch_check.call_copy import (
    MAX_REFERENCE_ELEMENT_BYTES,
    CallCopy,
    SkippedCallError,
    check_tensors,
    copy_call,
)
from probe_pytorch.dispatch_check.findings import CallOrigin
from probe_pytorch.dispatch_check.operators import (
    OperatorProperties,
    SkipReason,
    collect_results,
    draws_random_numbers,
    iterate_tensors,
    name_arguments,
    read_operator,
)
from probe_pytorch.dispatch_check.reference import DispatchedCall, convert_to_arrays, isolate_computation
from probe_pytorch.dispatch_check.settings import DispatchSettings
from probe_pytorch.precheck.failures import raise_memory_errors


class CallIdentity(NamedTuple):
    """Call that the mode sees.

    Attributes:
        number: Its number among all calls of the block.
        name: Its name, such as ``Aten.mm.3``.
        overload: The operator, such as ``aten.mm.default``.
        phase: ``forward`` or ``backward``.
        origin: The place in the program.
        forward: The name of the forward call that a call in a backward belongs to.
    """

    number: int
    name: str
    overload: str
    phase: str
    origin: CallOrigin
    forward: str


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that copies the arguments of each call, and hands the call over to be compared.

    Args:
        settings: The settings.
        receive: Receives each call that is to be compared, and returns an error to raise in the program.
        skip: Is told the operator and the reason of each call that is not.
        fail: Is told of an error of the check itself.

    Attributes:
        pending: An error to raise in the program; None if there is none.
    """

    def __init__(
        self,
        settings: DispatchSettings,
        receive: Callable[[CallIdentity, DispatchedCall], Exception | None],
        skip: Callable[[SkipReason, str], None],
        fail: Callable[[str, Exception], None],
    ) -> None:
        super().__init__()
        self._settings = settings
        self._receive, self._skip, self._fail = receive, skip, fail
        self._forward_calls = ForwardCalls()
        self._numbers: Counter[str] = Counter()
        self._next = 0
        self._nodes = threading.local()
        self._lock = threading.Lock()
        self._thread, self._process = threading.get_ident(), os.getpid()
        self.pending: Exception | None = None

    def __enter__(self) -> DispatchMode:
        self._thread = threading.get_ident()
        self._nodes.end = compat.get_sequence_number()
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator on the device, and compare it; what it returns is what the program receives."""
        kwargs = kwargs or {}
        if os.getpid() != self._process:  # a process that was forked in the block, such as of a data loader
            return func(*args, **kwargs)
        frame = sys._getframe().f_back  # may be None in threads of the autograd engine
        caller = None if frame is None else compat.find_dispatch_caller(frame)
        wrapped_function = wrap_with_caller(caller, compat.get_operator_function(func))
        prepared = None
        try:
            operator = read_operator(func)
            identity = self._identify_call(func, operator, caller)
            try:
                prepared = self._copy(func, operator, types, args, kwargs)
            except SkippedCallError as skip_error:
                self._skip(skip_error.reason, identity.overload)
        except Exception as problem:  # the training must go on
            self._fail(str(func), problem)
        result = wrapped_function(*args, **kwargs)
        if prepared is not None:
            error = self._submit_call(func, operator, identity, prepared, result, args, kwargs)
            self.pending = self.pending or error
        self._raise_pending()
        return result

    def _raise_pending(self) -> None:
        """Raise an error that is meant for the program, in the thread that entered the mode only.

        Not every device allows that a thread of the autograd engine raises an error.
        """
        if self.pending is not None and threading.get_ident() == self._thread:
            error, self.pending = self.pending, None
            raise error

    # -- before the call ---------------------------------------------------------------------------

    def _identify_call(self, func: Any, operator: OperatorProperties, caller: FrameType | None) -> CallIdentity:
        """Return the name, the phase and the place of a call."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            count = self._numbers[operator.prefix]
            self._numbers[operator.prefix] += 1
        name = f"{operator.prefix}.{count}"
        stack = read_stack(caller)
        is_backward = compat.get_graph_task() != -1
        phase = BACKWARD if is_backward else FORWARD
        is_engine = is_backward and (stack.is_in_engine or not stack.origin.file)
        forward = self._forward_calls.find_call(compat_dispatch.running_node()) if is_engine else None
        if not is_backward:
            self._note_nodes(ForwardCall(name, normalize_operator_name(operator.name), stack.origin))
        origin = stack.origin if forward is None else forward.origin
        return CallIdentity(number, name, str(func), phase, origin, "" if forward is None else forward.name)

    def _note_nodes(self, call: ForwardCall) -> None:
        """Remember the call that made the autograd nodes since the last call in this thread."""
        end = compat.get_sequence_number()
        first = getattr(self._nodes, "end", end)
        self._nodes.end = end
        if first < end:
            self._forward_calls.note(first, end, call)

    def _copy(
        self, func: Any, operator: OperatorProperties, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CallCopy:
        """Return copies of the arguments.

        Raises:
            NotCopied: The call is not compared.
        """
        if operator.reason is not None:
            raise SkippedCallError(operator.reason)
        name = f"{func.namespace}.{operator.name}"
        if name in self._settings.skip or str(func) in self._settings.skip:
            raise SkippedCallError(SkipReason.LISTED)
        arguments = name_arguments(func, args, kwargs)
        if draws_random_numbers(operator, arguments):
            raise SkippedCallError(SkipReason.RANDOM)
        if arguments.get("sorted") is False:  # torch leaves the order of the results open
            raise SkippedCallError(SkipReason.NOT_UNIQUE)
        tensors = [*iterate_tensors(args), *iterate_tensors(list(kwargs.values()))]
        check_tensors(tensors, types)
        device = self._settings.device
        if device and tensors and all(tensor.device.type != device for tensor in tensors):
            raise SkippedCallError(SkipReason.DEVICE)
        if operator.definition is None and not compat_dispatch.has_cpu_kernel(func.name()):
            raise SkippedCallError(SkipReason.NO_CPU_KERNEL)
        with isolate_computation(), raise_memory_errors():
            try:
                return copy_call(args, kwargs, tensors, self._settings.memory, is_writing=bool(operator.written))
            except MemoryError:
                raise SkippedCallError(SkipReason.MEMORY) from None

    # -- after the call ----------------------------------------------------------------------------

    def _check_results(self, tensors: list[torch.Tensor]) -> None:
        """Check that the results of a call can be copied and compared.

        Raises:
            NotCopied: They cannot.
        """
        check_tensors(tensors, {type(tensor) for tensor in tensors})
        device = self._settings.device
        if device and tensors and all(tensor.device.type != device for tensor in tensors):
            raise SkippedCallError(SkipReason.DEVICE)
        needed = sum(tensor.numel() * (tensor.element_size() + MAX_REFERENCE_ELEMENT_BYTES) for tensor in tensors)
        if needed > self._settings.memory:
            raise SkippedCallError(SkipReason.MEMORY)

    def _submit_call(
        self,
        func: Any,
        operator: OperatorProperties,
        identity: CallIdentity,
        copy: CallCopy,
        result: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Exception | None:
        try:
            with isolate_computation():
                arguments = name_arguments(func, args, kwargs)
                results = collect_results(func, operator, arguments, result)
                tensors = [*iterate_tensors(results)]
                self._check_results(tensors)
                call = DispatchedCall(
                    identity.number,
                    identity.name,
                    (operator.namespace, operator.name, func._overloadname),
                    identity.phase,
                    copy,
                    convert_to_arrays(results, copies=self._settings.processes > 0),
                    frozenset(str(tensor.dtype) for tensor in tensors if tensor.is_floating_point()),
                )
            return self._receive(identity, call)
        except SkippedCallError as skip_error:
            self._skip(skip_error.reason, identity.overload)
        except Exception as problem:  # the training must go on
            self._fail(identity.overload, problem)
        return None


# -- places in the program that call operators, and the forward calls that a backward belongs to ----


PLUGIN_DIRECTORY = str(Path(__file__).parents[1])
MAX_FORWARD_CALLS = 1 << 17
"""Number of autograd nodes whose forward call is remembered; the oldest are forgotten first."""


class ForwardCall(NamedTuple):
    """Call of an operator outside of backward passes.

    Attributes:
        name: The name of the call.
        operator: The name of the operator, without underscores.
        origin: The place in the program.
    """

    name: str
    operator: str
    origin: CallOrigin


class StackFacts(NamedTuple):
    """Facts of the Python stack of a call.

    Attributes:
        origin: The place in the program.
        is_in_engine: True if no code of the program is between the call and the start of the backward.
    """

    origin: CallOrigin
    is_in_engine: bool


Names = weakref.WeakKeyDictionary[torch.nn.Module, str]
_names: weakref.WeakKeyDictionary[torch.nn.Module, Names] = weakref.WeakKeyDictionary()


def read_stack(frame: FrameType | None) -> StackFacts:
    """Return the place in the program of a call, from the stack of ``frame`` outwards.

    Args:
        frame: The innermost frame.
    """
    file, line = "", 0
    inner: torch.nn.Module | None = None
    outer: torch.nn.Module | None = None
    is_in_engine = False
    while frame is not None:
        if not file and compat_dispatch.is_engine(frame):
            is_in_engine = True
        name = frame.f_code.co_filename
        if not file and not name.startswith((TORCH_DIRECTORY, PLUGIN_DIRECTORY)) and frame.f_code.co_name != STAND_IN:
            file, line = name, frame.f_lineno or 0
        module = compat_dispatch.find_calling_module(frame)
        if module is not None:
            inner, outer = inner or module, module
        frame = frame.f_back
    if inner is None or outer is None:
        return StackFacts(CallOrigin(file=file, line=line), is_in_engine)
    return StackFacts(CallOrigin(_find_module_path(outer, inner), type(inner).__name__, file, line), is_in_engine)


def _find_module_path(outer: torch.nn.Module, inner: torch.nn.Module) -> str:
    """Return the path of a module within another, or an empty text if it is not part of it."""
    names = _names.get(outer)
    if names is None or inner not in names:
        names = _names[outer] = weakref.WeakKeyDictionary()
        for name, module in outer.named_modules():
            names[module] = name
        names.setdefault(inner, "")
    return names[inner]


class ForwardCalls:
    """Forward calls by the sequence number of the autograd node that they made."""

    def __init__(self) -> None:
        self._calls: dict[int, ForwardCall] = {}
        self._lock = Lock()

    def note(self, first: int, end: int, call: ForwardCall) -> None:
        """Remember the call that made the nodes from ``first`` up to but without ``end``."""
        with self._lock:
            for number in range(max(first, end - 64), end):
                self._calls.pop(number, None)
                self._calls[number] = call
            while len(self._calls) > MAX_FORWARD_CALLS:
                del self._calls[next(iter(self._calls))]

    def find_call(self, node: compat_dispatch.Node | None) -> ForwardCall | None:
        """Return the forward call of a node; None if it is not known for certain.

        Sequence numbers of different threads may be equal, so the names must fit as well.
        """
        call = None if node is None else self._calls.get(node.number)
        if call is None or node is None:
            return None
        operator = node.name.rpartition("Backward")[0].lower()
        fits = call.operator.startswith(operator) or operator.startswith(call.operator)
        return call if node.is_custom or (operator and fits) else None


def normalize_operator_name(operator: str) -> str:
    """Return the name of an operator as names of autograd nodes have it: without underscores."""
    return operator.replace("_", "").lower()
