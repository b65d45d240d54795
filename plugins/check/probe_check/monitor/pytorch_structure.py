"""The structure of a model, and the call stacks of its modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from probe_recording.api import belongs_to_recorder, stack_of
from probe_recording.sites import lines_of
from torch import nn

from probe_check.monitor.names import Namer
from probe_check.monitor.pytorch_modules import ModuleHook
from probe_check.monitor.tasks import Task

MODULE_FILE = "torch/nn/modules/module.py"
"""The file whose frames call the forwards of modules; they are left out of stacks."""

Structure = dict[str, dict[str, dict[str, str]]]
"""The sides of each module, each with its kind and the layouts of its tensors."""


class StructureCollector:
    """The tensors of each side of each module in the first step, as ``module_struct.json`` contains them."""

    def __init__(self) -> None:
        self._sides: dict[tuple[str, str], dict[str, str]] = {}

    def receive(self, task: Task, model: int, name: str, number: int, tensor: torch.Tensor | None) -> None:
        """Note the layout of a tensor of a side."""
        module, _, side = name.rpartition(".")
        side, _, position = side.partition("_")
        shown = f"{side}_grad" if task is Task.ACTIVATION_GRADIENT else side
        values = self._sides.setdefault((f"{model}:{module}", shown), {})
        if tensor is not None or (position or "0") not in values:
            values[position or "0"] = _format_layout(tensor)

    def create_structure(self) -> Structure:
        """Return the structure."""
        structure: Structure = {}
        for (module, side), layouts in self._sides.items():
            if side == "output" and len(layouts) == 1:
                content = {"config": "tensor", "tensor": layouts["0"]}
            else:
                content = {"config": f"tuple[{len(layouts)}]", **layouts}
            structure.setdefault(module, {})[side] = content
        return structure


def _format_layout(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"size={tuple(tensor.shape)}, dtype={tensor.dtype}"


class StackHooks:
    """Hooks that note the call stack of the first forward of each module."""

    def __init__(self, is_observed: Callable[[], bool]) -> None:
        self._is_observed = is_observed
        self._handles: list[Any] = []
        self._stacks: dict[str, str] = {}
        belongs_to_recorder(Path(__file__).parent)

    def install(self, models: Sequence[nn.Module], *, is_short: bool) -> None:
        """Hook all modules."""
        namer = Namer(is_short=is_short)
        for model, root in enumerate(models):
            for name, module in root.named_modules():
                shown = f"{model}:{namer.choose_name(model, name)}"
                hook = ModuleHook(lambda *_, shown=shown: self._note(shown))
                self._handles.append(module.register_forward_hook(hook))

    def _note(self, name: str) -> None:
        if self._is_observed() and name not in self._stacks:
            self._stacks[name] = "\n".join(
                line for line in lines_of(stack_of(sys._getframe(3))) if MODULE_FILE not in line
            )

    def take(self) -> dict[str, str]:
        """Return the stacks, and remove the hooks if there are any."""
        if self._stacks:
            self.remove()
        return self._stacks

    def remove(self) -> None:
        """Remove the hooks."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
