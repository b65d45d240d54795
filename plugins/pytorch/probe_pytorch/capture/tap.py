"""Recording of modules from inside compiled code (``"compile": "tap"``), without breaking its graphs.

Forward hooks call an operator of probe, which the compiler keeps in its graph and runs in order. The operator
records the inputs, outputs and parameters of modules, and the gradients of the parameters. Gradients of inputs and
outputs are not recorded; to record these gradients, use level L0 with ``"compile": "eager"``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from probe_recording.api import Capture
from probe_recording.values.leaves import Tree
from torch import nn

from probe_pytorch import compat, compat_hooks
from probe_pytorch.capture.modules import list_modules
from probe_pytorch.capture.transient_hooks import exclude_from_copies, remove_hook
from probe_pytorch.session import Entry, TorchSession

SEPARATOR = "|"


class _OpenCall(NamedTuple):
    """A call that is being recorded.

    Attributes:
        entry: The record of the call.
        recorded_paths: The paths of the values recorded so far.
    """

    entry: Entry
    recorded_paths: set[str]


class TapCapture(Capture[TorchSession]):
    """A capture by hooks that stay on the model between steps.

    Attributes:
        session: The session that is recorded into, or None.
    """

    def __init__(self) -> None:
        self.session: TorchSession | None = None
        self._modules: dict[str, nn.Module] = {}
        self._open_calls: dict[str, _OpenCall] = {}
        self._handles: list[Any] = []
        self._gradients: dict[str, Entry] = {}

    def install(self, session: TorchSession, model: Any) -> None:
        """Record into a session, and hook the modules of a model unless they are hooked."""
        if session is not self.session:
            self.session = session
            self._gradients.clear()
        if model is not None:
            self._hook(list_modules(model))

    def _hook(self, named_modules: list[tuple[str, nn.Module]]) -> None:
        """Register the hooks of the modules, and discard compiled code, so that it is compiled again with the hooks."""
        if self._modules:
            return
        compat.register_tap(self._record_value)
        for name, module in named_modules:
            prefix = f"Module.{name}"
            self._modules[prefix] = module
            self._handles.append(
                exclude_from_copies(module.register_forward_pre_hook(_create_input_hook(prefix), with_kwargs=True))
            )
            self._handles.append(exclude_from_copies(module.register_forward_hook(_create_output_hook(prefix))))
            for key, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    hook = self._create_gradient_hook(prefix, key)
                    self._handles.append(compat_hooks.register_hook(parameter, hook))
        compat.forget_compiled()

    def remove(self) -> None:
        """Do nothing. The hooks stay until ``close``, because their removal forces a new compilation."""

    def close(self) -> None:
        """Remove the hooks, and discard code that was compiled with them."""
        if not self._handles:
            return
        for handle in self._handles:
            remove_hook(handle)
        self._handles.clear()
        self._modules.clear()
        compat.register_tap(None)
        compat.forget_compiled()

    def complete(self, session: TorchSession) -> None:
        """Complete the records of open calls; gradients may still be recorded later in the step."""
        for open_call in self._open_calls.values():
            session.complete(open_call.entry)
        self._open_calls.clear()

    def _record_value(self, tensor: torch.Tensor, name: str) -> None:
        session = self.session
        if session is None or not session.active:
            return
        prefix, side, path = name.split(SEPARATOR)
        try:
            with compat.disable_modes():
                entry, recorded_paths = self._find_open_call(session, prefix, f"{side}.{path}")
                name_part = {"input_args": "input", "input_kwargs": "kwargs"}.get(side, side)
                leaf = session.collector.tree(tensor, f"{entry.key}.{name_part}.{path}", session.save_for(entry.key))
            recorded_paths.add(f"{side}.{path}")
            _insert_leaf(entry.fields, [side, *path.split(".")], leaf)
            session.note_arrival(entry)
        except Exception as error:
            session.log_failure("tap", name, error)

    def _find_open_call(self, session: TorchSession, prefix: str, path: str) -> _OpenCall:
        """Return the current call of a module. A path that was already recorded begins a new call."""
        current = self._open_calls.get(prefix)
        if current is not None and path not in current.recorded_paths:
            return current
        if current is not None:
            session.complete(current.entry)
        key = f"{prefix}.forward.{session.number(prefix)}"
        fields: dict[str, Tree] = {"input_args": [], "input_kwargs": {}, "output": []}
        save = session.save_for(key)
        fields["parameters"] = {
            name: session.collector.tree(parameter, f"{key}.parameters.{name}", save)
            for name, parameter in self._modules[prefix].named_parameters(recurse=False)
        }
        self._open_calls[prefix] = opened = _OpenCall(session.open(key, fields), set())
        return opened

    def _create_gradient_hook(self, prefix: str, key: str) -> Any:
        record_key = f"{prefix}.parameters_grad"

        def hook(gradient: torch.Tensor) -> None:
            session = self.session
            if session is None or not session.active or torch.compiler.is_compiling():
                return
            with compat.disable_modes():
                leaf = session.collector.tree(gradient, f"{record_key}.{key}", session.save_for(record_key))
            entry = self._gradients.get(record_key)
            if entry is None:
                entry = self._gradients[record_key] = session.open(record_key, {})
            entry.fields[key] = [leaf]
            session.note_arrival(entry)

        return hook


def _insert_leaf(fields: Tree, path: list[str], leaf: Tree) -> None:
    """Insert a leaf at its path. Numbers are positions in lists, which are extended as needed."""
    node = fields
    for key, next_key in zip(path, [*path[1:], None]):
        if isinstance(node, list):
            position = int(key)
            node.extend([None] * (position + 1 - len(node)))
            if next_key is None:
                node[position] = leaf
            elif node[position] is None:
                node[position] = [] if next_key.isdigit() else {}
            node = node[position]
        else:
            if next_key is None:
                node[key] = leaf
            else:
                node.setdefault(key, [] if next_key.isdigit() else {})
            node = node[key]


def _create_input_hook(prefix: str) -> Any:
    def tap_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _is_creating_graph():
            return
        _tap(args, f"{prefix}{SEPARATOR}input_args{SEPARATOR}")
        _tap(kwargs, f"{prefix}{SEPARATOR}input_kwargs{SEPARATOR}")

    return tap_inputs


def _create_output_hook(prefix: str) -> Any:
    def tap_outputs(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if _is_creating_graph():
            return
        outputs = output if isinstance(output, tuple) else (output,)
        _tap(outputs, f"{prefix}{SEPARATOR}output{SEPARATOR}")

    return tap_outputs


def _is_creating_graph() -> bool:
    """Return True while a graph is created for the user by an export or a trace; it must not contain taps."""
    return compat.is_exporting() or (not torch.compiler.is_compiling() and compat.is_tracing())


def _tap(value: Any, name: str) -> None:
    """Tap every tensor in ``value``; the compiler traces this function, so it must stay simple."""
    if isinstance(value, torch.Tensor):
        torch.ops.probe.tap(value.detach(), name)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _tap(item, f"{name}{number}" if name.endswith(SEPARATOR) else f"{name}.{number}")
    elif isinstance(value, dict):
        for key, item in value.items():
            _tap(item, f"{name}{key}" if name.endswith(SEPARATOR) else f"{name}.{key}")
