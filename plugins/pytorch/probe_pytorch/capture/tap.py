"""``compile: tap``: modules recorded from inside compiled code, whose graphs stay whole.

Forward hooks call an operator of ours, which the compiler keeps in its graph and runs in order. What
passes through is recorded: tensors that modules take in and give out, their parameters, and the
gradients of those. Gradients of inputs and outputs are not seen; level L0 in eager shows them.
"""

from __future__ import annotations

from typing import Any

import torch
from probe_recording import Tree
from torch import nn
from torch.utils.hooks import unserializable_hook

from probe_pytorch import compat
from probe_pytorch.capture.hidden import hide, remove
from probe_pytorch.session import Entry, Session

SEPARATOR = "|"
SIDES = ("input_args", "input_kwargs", "output")


class TapCapture:
    """Hooks that stay on the model, and the records that come of what they tap."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self._modules: dict[str, nn.Module] = {}
        self._open: dict[str, tuple[Entry, set[str]]] = {}
        self._handles: list[Any] = []
        self._gradients: dict[str, Entry] = {}

    def install(self, named: list[tuple[str, nn.Module]]) -> None:
        """Hook the modules, and have what was compiled before compiled again with the hooks in it."""
        if self._modules:
            return
        compat.register_tap(self._tapped)
        for name, module in named:
            prefix = f"Module.{name}"
            self._modules[prefix] = module
            self._handles.append(hide(module.register_forward_pre_hook(_before(prefix), with_kwargs=True)))
            self._handles.append(hide(module.register_forward_hook(_after(prefix))))
            for key, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    self._handles.append(parameter.register_hook(self._gradient_hook(prefix, key)))
        compat.forget_compiled()

    def remove(self) -> None:
        """Take the hooks off; what was compiled with them is compiled once more without."""
        if not self._handles:
            return
        for handle in self._handles:
            remove(handle)
        self._handles.clear()
        self._modules.clear()
        compat.register_tap(None)
        compat.forget_compiled()

    def begin_step(self, session: Session) -> None:
        """Record into ``session`` from now on."""
        if session is not self.session:
            self.session = session
            self._gradients.clear()

    def stop(self) -> None:
        """Calls that are open are complete; gradients may still come when the step goes on."""
        if self.session is not None:
            for entry, _ in self._open.values():
                self.session.complete(entry)
        self._open.clear()

    def _tapped(self, tensor: torch.Tensor, name: str) -> None:
        session = self.session
        if session is None or not session.active:
            return
        prefix, side, path = name.split(SEPARATOR)
        try:
            with compat.quiet():
                entry, seen = self._entry(session, prefix, f"{side}.{path}")
                kind = {"input_args": "input", "input_kwargs": "kwargs"}.get(side, side)
                leaf = session.collector.tree(
                    tensor, f"{entry.key}.{kind}.{path}", session.save_for(entry.key)
                )
            seen.add(f"{side}.{path}")
            _put(entry.fields, [side, *path.split(".")], leaf)
            session.arrived(entry)
        except Exception as error:
            session.failed("tap", name, error)

    def _entry(self, session: Session, prefix: str, slot: str) -> tuple[Entry, set[str]]:
        """The record of the module's current call; a slot that it has already begins the next one."""
        found = self._open.get(prefix)
        if found is not None and slot not in found[1]:
            return found
        if found is not None:
            session.complete(found[0])
        key = f"{prefix}.forward.{session.number(prefix)}"
        fields: dict[str, Tree] = {"input_args": [], "input_kwargs": {}, "output": []}
        save = session.save_for(key)
        fields["parameters"] = {
            name: session.collector.tree(parameter, f"{key}.parameters.{name}", save)
            for name, parameter in self._modules[prefix].named_parameters(recurse=False)
        }
        self._open[prefix] = session.open(key, fields), set()
        return self._open[prefix]

    def _gradient_hook(self, prefix: str, key: str) -> Any:
        record = f"{prefix}.parameters_grad"

        def hook(gradient: torch.Tensor) -> None:
            session = self.session
            if session is None or not session.active or torch.compiler.is_compiling():
                return
            with compat.quiet():
                leaf = session.collector.tree(gradient, f"{record}.{key}", session.save_for(record))
            entry = self._gradients.setdefault(record, session.open(record, {}))
            entry.fields[key] = [leaf]
            session.arrived(entry)

        return unserializable_hook(hook)


def _put(fields: Tree, path: list[str], leaf: Tree) -> None:
    """Put a leaf at its path; numbers are places in lists, which grow as they must."""
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


def _before(prefix: str) -> Any:
    def tap_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _makes_a_graph():
            return
        _tap(args, f"{prefix}{SEPARATOR}input_args{SEPARATOR}")
        _tap(kwargs, f"{prefix}{SEPARATOR}input_kwargs{SEPARATOR}")

    return tap_inputs


def _after(prefix: str) -> Any:
    def tap_outputs(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if _makes_a_graph():
            return
        outputs = output if isinstance(output, tuple) else (output,)
        _tap(outputs, f"{prefix}{SEPARATOR}output{SEPARATOR}")

    return tap_outputs


def _makes_a_graph() -> bool:
    """True where a graph is made that is the user's to keep; torch.compile's, which goes, is tapped."""
    return compat.is_exporting() or (not torch.compiler.is_compiling() and compat.is_tracing())


def _tap(value: Any, name: str) -> None:
    """Tap every tensor in ``value``; this is what the compiler traces, so it is plain."""
    if isinstance(value, torch.Tensor):
        torch.ops.probe.tap(value.detach(), name)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _tap(item, f"{name}{number}" if name.endswith(SEPARATOR) else f"{name}.{number}")
    elif isinstance(value, dict):
        for key, item in value.items():
            _tap(item, f"{name}{key}" if name.endswith(SEPARATOR) else f"{name}.{key}")
