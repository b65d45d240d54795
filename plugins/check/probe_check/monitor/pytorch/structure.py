"""The structure of a model, and the call stacks of its modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from probe_recording.api import belongs_to_recorder, stack_of
from probe_recording.sites import list_stack_lines
from torch import nn

from probe_check.monitor.names import Namer
from probe_check.monitor.pytorch.hooks import TrainingHooks
from probe_check.monitor.pytorch.values import ValueIdentity
from probe_check.monitor.tasks import Task

MODULE_FILE = "torch/nn/modules/module.py"
"""The file whose frames call the forwards of modules; they are left out of stacks."""

Structure = dict[str, dict[str, dict[str, str]]]
"""The sides of each module, each with its kind and the layouts of its tensors."""


class StructureCollector:
    """The tensors of each side of each module in the first step, as ``module_struct.json`` contains them."""

    def __init__(self) -> None:
        self._sides: dict[tuple[str, str], dict[str, str]] = {}

    def receive(self, identity: ValueIdentity, tensor: torch.Tensor | None) -> None:
        """Note the layout of a tensor of a side."""
        module, _, side = identity.name.rpartition(".")
        side, _, position = side.partition("_")
        shown_side = f"{side}_grad" if identity.task is Task.ACTIVATION_GRADIENT else side
        values = self._sides.setdefault((f"{identity.model_index}:{module}", shown_side), {})
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


class StackHooks(TrainingHooks):
    """Hooks that note the call stack of the first forward of each module.

    Args:
        models: The models.
        is_active: A function that returns True in steps that are observed.
        is_short: True to shorten names.
    """

    def __init__(self, models: Sequence[nn.Module], is_active: Callable[[], bool], *, is_short: bool) -> None:
        super().__init__()
        self._is_active = is_active
        self._stacks: dict[str, str] = {}
        belongs_to_recorder(Path(__file__).parents[1])
        namer = Namer(is_short=is_short)
        for model_index, model in enumerate(models):
            for name, module in model.named_modules():
                shown_name = f"{model_index}:{namer.choose_name(model_index, name)}"
                self._add_forward_hook(module, lambda *_, shown_name=shown_name: self._note(shown_name))

    def _note(self, name: str) -> None:
        if self._is_active() and name not in self._stacks:
            self._stacks[name] = "\n".join(
                line for line in list_stack_lines(stack_of(sys._getframe(3))) if MODULE_FILE not in line
            )

    def take(self) -> dict[str, str]:
        """Return the stacks, and remove the hooks if there are stacks."""
        if self._stacks:
            self.remove()
        return self._stacks
