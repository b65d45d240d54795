"""Recording of modules from inside compiled code (``"compile": "tap"``), without breaking its graphs.

Forward hooks call an operator of probe, which the compiler keeps in its graph and runs in order. It records
the inputs and outputs of modules, their parameters, and the parameters' gradients. Gradients of inputs and
outputs are not recorded; for those use level L0 with ``"compile": "eager"``.
"""

from __future__ import annotations

from typing import Any

import torch
from probe_recording import Capture, Tree
from torch import nn

from probe_pytorch import compat, compat_hooks
from probe_pytorch.capture.modules import list_modules
from probe_pytorch.capture.transient_hooks import exclude_from_copies, remove_hook
from probe_pytorch.session import Entry, TorchSession

SEPARATOR = "|"
SIDES = ("input_args", "input_kwargs", "output")


class TapCapture(Capture[TorchSession]):
    """A capture by hooks that stay on the model between steps.

    Attributes:
        session: The session that is recorded into, or None.
    """

    def __init__(self) -> None:
        self.session: TorchSession | None = None
        self._modules: dict[str, nn.Module] = {}
        self._open: dict[str, tuple[Entry, set[str]]] = {}
        self._handles: list[Any] = []
        self._gradients: dict[str, Entry] = {}

    def install(self, session: TorchSession, model: Any) -> None:
        """Record into a session, and hook the modules of a model unless they are hooked."""
        if session is not self.session:
            self.session = session
            self._gradients.clear()
        if model is not None:
            self._hook(list_modules(model))

    def _hook(self, named: list[tuple[str, nn.Module]]) -> None:
        """Hook the modules, and have code that was compiled before compiled again, now with the hooks."""
        if self._modules:
            return
        compat.register_tap(self._record_tapped)
        for name, module in named:
            prefix = f"Module.{name}"
            self._modules[prefix] = module
            self._handles.append(
                exclude_from_copies(module.register_forward_pre_hook(_make_input_hook(prefix), with_kwargs=True))
            )
            self._handles.append(exclude_from_copies(module.register_forward_hook(_make_output_hook(prefix))))
            for key, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    hook = self._make_gradient_hook(prefix, key)
                    self._handles.append(compat_hooks.register_hook(parameter, hook))
        compat.forget_compiled()

    def remove(self) -> None:
        """Leave the hooks in place until ``close``, because code must be compiled again without them."""

    def close(self) -> None:
        """Remove the hooks, and have code that was compiled with them compiled again, now without."""
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
        for entry, _ in self._open.values():
            session.complete(entry)
        self._open.clear()

    def _record_tapped(self, tensor: torch.Tensor, name: str) -> None:
        session = self.session
        if session is None or not session.active:
            return
        prefix, side, path = name.split(SEPARATOR)
        try:
            with compat.disable_modes():
                entry, recorded_paths = self._open_entry(session, prefix, f"{side}.{path}")
                kind = {"input_args": "input", "input_kwargs": "kwargs"}.get(side, side)
                leaf = session.collector.tree(tensor, f"{entry.key}.{kind}.{path}", session.save_for(entry.key))
            recorded_paths.add(f"{side}.{path}")
            _put(entry.fields, [side, *path.split(".")], leaf)
            session.note_arrival(entry)
        except Exception as error:
            session.failed("tap", name, error)

    def _open_entry(self, session: TorchSession, prefix: str, slot: str) -> tuple[Entry, set[str]]:
        """Return the record of a module's current call and its slots; a slot seen twice begins a new call."""
        current = self._open.get(prefix)
        if current is not None and slot not in current[1]:
            return current
        if current is not None:
            session.complete(current[0])
        key = f"{prefix}.forward.{session.number(prefix)}"
        fields: dict[str, Tree] = {"input_args": [], "input_kwargs": {}, "output": []}
        save = session.save_for(key)
        fields["parameters"] = {
            name: session.collector.tree(parameter, f"{key}.parameters.{name}", save)
            for name, parameter in self._modules[prefix].named_parameters(recurse=False)
        }
        self._open[prefix] = session.open(key, fields), set()
        return self._open[prefix]

    def _make_gradient_hook(self, prefix: str, key: str) -> Any:
        record = f"{prefix}.parameters_grad"

        def hook(gradient: torch.Tensor) -> None:
            session = self.session
            if session is None or not session.active or torch.compiler.is_compiling():
                return
            with compat.disable_modes():
                leaf = session.collector.tree(gradient, f"{record}.{key}", session.save_for(record))
            entry = self._gradients.setdefault(record, session.open(record, {}))
            entry.fields[key] = [leaf]
            session.note_arrival(entry)

        return hook


def _put(fields: Tree, path: list[str], leaf: Tree) -> None:
    """Put a leaf at its path; numbers are positions in lists, which are extended as needed."""
    place = fields
    for step, following in zip(path, [*path[1:], None]):
        if isinstance(place, list):
            number = int(step)
            place.extend([None] * (number + 1 - len(place)))
            if following is None:
                place[number] = leaf
            elif place[number] is None:
                place[number] = [] if following.isdigit() else {}
            place = place[number]
        else:
            if following is None:
                place[step] = leaf
            else:
                place.setdefault(step, [] if following.isdigit() else {})
            place = place[step]


def _make_input_hook(prefix: str) -> Any:
    def tap_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _is_making_graph():
            return
        _tap(args, f"{prefix}{SEPARATOR}input_args{SEPARATOR}")
        _tap(kwargs, f"{prefix}{SEPARATOR}input_kwargs{SEPARATOR}")

    return tap_inputs


def _make_output_hook(prefix: str) -> Any:
    def tap_outputs(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if _is_making_graph():
            return
        outputs = output if isinstance(output, tuple) else (output,)
        _tap(outputs, f"{prefix}{SEPARATOR}output{SEPARATOR}")

    return tap_outputs


def _is_making_graph() -> bool:
    """Return True if a graph for the user is being made (export, trace), which must not hold taps."""
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
