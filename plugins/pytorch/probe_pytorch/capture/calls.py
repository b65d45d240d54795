"""One call of an API, recorded: its inputs before it runs, its outputs after, its gradients later."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from probe_recording import Backward, Stack, Threads, Tree, files_of

from probe_pytorch import compat
from probe_pytorch.capture.gradients import Arrived, Source, attach_api, sources_of, tensors_in
from probe_pytorch.capture.kernel_dump import KernelDump
from probe_pytorch.session import Session

CHECKPOINT = "/torch/utils/checkpoint.py"
OPTIMIZER, CLIPPING = "/torch/optim/", "/torch/nn/utils/clip_grad.py"


@dataclass(slots=True, eq=False)
class Call:
    """A call that has begun and is recorded."""

    prefix: str
    number: int
    fields: dict[str, Tree]
    stack: Stack
    parent: str | None
    sources: list[Source]
    first_new: int
    wanted: bool = True
    inside: bool = False

    @property
    def name(self) -> str:
        """The call's name without its phase."""
        return f"{self.prefix}.{self.number}"


class Calls:
    """Records calls into a session."""

    def __init__(self, session: Session, threads: Threads) -> None:
        self.session = session
        self._threads = threads
        config = session.config
        self._inputs = session.wants("forward", "input")
        self._outputs = session.wants("forward", "output")
        self._backward = "backward" in config.directions and config.task != "structure"
        self._values = config.task != "structure"
        self._tree = config.modules
        self._kernels: tuple[str, KernelDump] | None = None

    def dump_kernels(self, name: str, dump: KernelDump) -> None:
        """Have the kernels of the one call ``name`` dumped by the device."""
        self._kernels = name, dump

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
    ) -> Any:
        """Run ``function`` and record the call.

        Args:
            prefix: What the call is called, without its count.
            function: What is called, with ``args`` and ``kwargs``.
            stack: Where from.
            shown: The arguments as they were written, where they differ.
            in_place: The call writes its first argument.
            filled: Positions and keywords of buffers that the call fills.
        """
        shown_args, shown_kwargs = shown or (args, kwargs)
        call = self.begin(prefix, shown_args, shown_kwargs, stack, filled, in_place)
        if call is None:
            return function(*args, **kwargs)
        try:
            result = self._run(call, function, args, kwargs)
        except BaseException:
            self.session.take_back(prefix, call.number)
            raise
        written = result
        if result is None and in_place and shown_args:
            written = shown_args[0]
        self.end(call, written)
        return result

    def _run(
        self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the call, on an NPU at level L2 with its kernels dumped, or those of its backward."""
        name, dump = self._kernels or ("", None)
        if dump is None or not name.startswith(f"{call.name}."):
            return function(*args, **kwargs)
        if name.endswith(".forward"):
            return dump.run(lambda: function(*args, **kwargs))
        result = function(*args, **kwargs)
        for tensor in tensors_in(result if isinstance(result, tuple) else (result,))[:1]:
            if tensor.grad_fn is not None:
                dump.attach(tensor.grad_fn)
        return result

    def begin(
        self, prefix: str, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack,
        filled: Collection[Any] = (), in_place: bool = False,
    ) -> Call | None:  # fmt: skip
        """A call begins: take its inputs, unless it is not wanted. The recorder's errors stay here."""
        session = self.session
        name = prefix
        if compat.is_tracing():
            return None
        try:
            number = session.number(prefix)
            name = f"{prefix}.{number}.forward"
            wanted = session.filter.api(name)
            if not wanted and not self._backward:
                return None
            modules = self._threads.modules
            call = Call(prefix, number, {}, stack, modules[-1] if modules else None, [], 0, wanted)
            call.inside = session.filter.inside
            if self._values:
                if filled:
                    args = tuple(None if i in filled else value for i, value in enumerate(args))
                    kwargs = {key: None if key in filled else value for key, value in kwargs.items()}
                with compat.quiet():
                    if self._inputs and wanted:
                        self._take_inputs(call, name, args, kwargs, in_place)
                    if self._backward and torch.is_grad_enabled():
                        call.sources = sources_of((*args, *kwargs.values()))
                        call.first_new = compat.sequence_number()
            return call
        except Exception as error:
            session.failed("forward input", name, error)
            return None

    def _take_inputs(
        self, call: Call, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], in_place: bool
    ) -> None:
        session = self.session
        save = session.save_for(name, in_place)
        call.fields["input_args"] = session.collector.arguments(args, f"{name}.input", save)
        call.fields["input_kwargs"] = session.collector.keywords(kwargs, f"{name}.kwargs", save)

    def end(self, call: Call, result: Any) -> None:
        """A call has ended: take its outputs, add the record, and wait for its gradients."""
        session = self.session
        name = f"{call.name}.forward"
        try:
            outputs = result if isinstance(result, tuple) else (result,)
            if self._values and self._outputs and call.wanted:
                save = session.save_for(name)
                with compat.quiet():
                    call.fields["output"] = session.collector.arguments(
                        tuple(outputs), f"{name}.output", save
                    )
            parent = call.parent
            if self._values and compat.graph_task() != -1 and is_recompute(call.stack):
                call.fields["is_recompute"] = True
            if self._tree and parent is None:
                parent = pseudo_parent(call.stack)
            if call.wanted and ("forward" in session.config.directions or not self._values):
                session.add(name, call.fields, call.stack, parent)
            if call.sources:
                with compat.quiet():
                    attach_api(outputs, call.sources, lambda: receiver(session, call), call.first_new)
        except Exception as error:
            session.failed("forward output", name, error)


def receiver(session: Session, call: Call) -> Arrived:
    """What is told of the gradients of ``call``."""
    parent = call.parent.replace(".forward.", ".backward.") if call.parent else None
    return Backward(session, f"{call.name}.backward", parent, inside=call.inside)


def is_recompute(stack: Stack) -> bool:
    """Does activation checkpointing run this call a second time?"""
    return any(file.endswith(CHECKPOINT) for file in files_of(stack))


def pseudo_parent(stack: Stack) -> str | None:
    """``optimizer`` or ``clip_grad`` for what runs in one of them (spec/dump 9.3)."""
    for file in files_of(stack):
        if file.endswith(CLIPPING):
            return "clip_grad"
        if OPTIMIZER in file:
            return "optimizer"
    return None
