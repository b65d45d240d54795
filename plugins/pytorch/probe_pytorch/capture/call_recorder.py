"""Recording of one call of torch: its inputs before it runs, its outputs afterwards, its gradients later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from probe_recording.api import Backward, CallRecorder
from probe_recording.capture.call_recorder import RunningCall
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack, list_stack_files

from probe_pytorch import compat
from probe_pytorch.capture.gradients import attach_api, list_sources, list_tensors
from probe_pytorch.capture.kernel_dump import KernelDump
from probe_pytorch.capture.uninitialized_memory import UninitializedMemory
from probe_pytorch.generators import State, find_draws, may_draw, read_states
from probe_pytorch.session import TorchSession

T = TypeVar("T")

CHECKPOINT_FILE = "/torch/utils/checkpoint.py"
OPTIMIZER_DIRECTORY, CLIPPING_FILE = "/torch/optim/", "/torch/nn/utils/clip_grad.py"


class TorchCallRecorder(CallRecorder[TorchSession]):
    """A recorder of torch calls into a session.

    Attributes:
        uninitialized: The memory that the program allocated without values and has not written yet.
    """

    _kernels: tuple[str, KernelDump, torch.Tensor | None] | None = None

    def __init__(self, session: TorchSession, threads: Threads) -> None:
        super().__init__(session, threads)
        self.uninitialized = UninitializedMemory()

    def dump_kernels(self, name: str, dump: KernelDump, gradient: torch.Tensor | None = None) -> None:
        """Dump the device's kernels of the one call whose record is ``name``.

        Args:
            name: The name of the record.
            dump: The dump.
            gradient: For a backward record, the gradient of the call's first result, with which its backward
                runs at once; None to dump the backward of the program itself.
        """
        self._kernels = name, dump, gradient

    def record(
        self,
        prefix: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: Stack,
        shown: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        in_place: bool = False,
        filled: Collection[Any] = (),
        written: Sequence[Any] = (),
    ) -> Any:
        """Run ``function`` and record the call.

        Args:
            prefix: The name of the call without its count, such as ``Functional.relu``.
            function: The function to call.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            stack: The frames of the caller.
            shown: The arguments as the script wrote them, if they differ from ``args`` and ``kwargs``.
            in_place: True if the call overwrites its first argument.
            filled: Positions and keywords of output buffers, which have no values yet and are recorded as null.
            written: Arguments that the call overwrites; those that it does not return follow its outputs.
        """
        shown_args, shown_kwargs = shown or (args, kwargs)
        uninitialized: list[torch.Tensor] = []
        if self.uninitialized.has_storages:
            uninitialized = self.attempt(
                prefix, partial(self.uninitialized.find_uninitialized, (shown_args, shown_kwargs)), uninitialized
            )
        call = self.begin(
            prefix, shown_args, shown_kwargs, stack, filled, in_place or bool(written),
            changes_leaves=bool(uninitialized),
        )  # fmt: skip
        if call is None:
            return function(*args, **kwargs)
        states = self._read_states(prefix, kwargs)
        try:
            result = self._run(call, function, args, kwargs)
        except BaseException:
            self.session.take_back(prefix, call.number)
            raise
        if states:
            self.attempt(prefix, partial(self._note_draws, f"{call.name}.forward", states), None)
        if result is None and in_place and shown_args:
            written = shown_args[:1]
        is_view = False
        if uninitialized:
            settle = partial(self._settle, call, prefix, uninitialized, shown_args, shown_kwargs, result)
            is_view = self.attempt(call.name, settle, False)
        self.end(call, _list_outputs(result, written) if written else result, is_uninitialized=is_view)
        return result

    def _read_states(self, prefix: str, kwargs: dict[str, Any]) -> list[State]:
        """Return the states of the generators that a call may draw from."""
        if self.session.conditions is None:
            return []

        def read() -> list[State]:
            if not may_draw(prefix):
                return []
            with self.session.quiet():
                return read_states(kwargs.get("generator"))

        return self.attempt(prefix, read, [])

    def _note_draws(self, op: str, states: list[State]) -> None:
        conditions = self.session.conditions
        if conditions is not None:
            with self.session.quiet(), self.session.lock:
                conditions.add_draws(find_draws(op, states))

    def note_allocation(self, name: str, tensor: Any) -> None:
        """Note that a call of ``name`` allocated a tensor without values."""
        self.attempt(name, partial(self.uninitialized.add_storage, tensor), None)

    def attempt(self, name: str, function: Callable[[], T], otherwise: T) -> T:
        """Return what ``function`` returns; if it raises, log the error and return ``otherwise``.

        Args:
            name: The name of the call that the recorder works for.
            function: A part of the recorder, whose errors must not reach the training.
            otherwise: The result in place of an error.
        """
        try:
            return function()
        except Exception as error:
            self.session.log_failure("call", name, error)
            return otherwise

    def _settle(
        self, call: RunningCall, prefix: str, uninitialized: list[torch.Tensor], args: Any, kwargs: Any, result: Any
    ) -> bool:
        """Record as null what a call received without values; return True if its result has none either."""
        api = prefix.rpartition(".")[2]
        without_values, is_view = self.uninitialized.update_after_call(api, uninitialized, result)
        for field, values in (("input_args", args), ("input_kwargs", kwargs)):
            if field in call.fields:
                call.fields[field] = self.uninitialized.replace_by_null(call.fields[field], values, without_values)
        return is_view

    def _run(
        self, call: RunningCall, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the call; on an NPU at level L2 dump the kernels of the selected call or of its backward."""
        name, dump, gradient = self._kernels or ("", None, None)
        if dump is None or not name.startswith(f"{call.name}."):
            return function(*args, **kwargs)
        if name.endswith(".forward"):
            return dump.run(lambda: function(*args, **kwargs))
        if gradient is not None:
            with self.session.quiet():
                dump.replay(self._threads.outermost(function), args, kwargs, gradient)
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        for tensor in list_tensors(result if isinstance(result, tuple) else (result,))[:1]:
            if tensor.grad_fn is not None:
                dump.attach(tensor.grad_fn)
        return result

    def begin(
        self, prefix: str, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack,
        filled: Collection[Any] = (), in_place: bool = False, *, changes_leaves: bool = False,
    ) -> RunningCall | None:  # fmt: skip
        """Record the inputs of a call before it runs, unless torch is tracing it."""
        if compat.is_tracing():
            return None
        return super().begin(prefix, args, kwargs, stack, filled, in_place, changes_leaves=changes_leaves)

    def _take_sources(self, call: RunningCall, values: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            call.sources = list_sources(values)
            call.first_new = compat.get_sequence_number()

    def _expect_gradients(self, call: RunningCall, outputs: tuple[Any, ...]) -> None:
        if call.sources:
            key = f"{call.name}.backward"
            backward = partial(
                Backward, self.session, key, call.parent, is_in_selected_module=call.is_in_selected_module
            )
            attach_api(outputs, call.sources, backward, call.first_new)

    def _is_recompute(self, stack: Stack) -> bool:
        return compat.get_graph_task() != -1 and is_recompute(stack)

    def _find_parent(self, call: RunningCall) -> str | None:
        if call.parent is None and self.session.config.modules:
            return find_pseudo_parent(call.stack)
        return call.parent


def _list_outputs(result: Any, written: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a call, followed by the arguments that it overwrote and does not return."""
    returned = result if isinstance(result, tuple) else () if result is None else (result,)
    return (*returned, *(value for value in written if not any(value is item for item in returned)))


def is_recompute(stack: Stack) -> bool:
    """Return True if activation checkpointing runs this call a second time."""
    return any(file.endswith(CHECKPOINT_FILE) for file in list_stack_files(stack))


def find_pseudo_parent(stack: Stack) -> str | None:
    """Return the parent ``optimizer`` or ``clip_grad`` of a call made in one of them, else None.

    See docs/formats.md#construct-json.
    """
    for file in list_stack_files(stack):
        if file.endswith(CLIPPING_FILE):
            return "clip_grad"
        if OPTIMIZER_DIRECTORY in file:
            return "optimizer"
    return None
