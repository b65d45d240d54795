"""Names of rows in the older tools' words, taken apart into probe's words.

ptdbg_ascend up to 4.x writes ``Functional_conv2d_1_backward_output.0``, 6.0 the same with dots, and
torch_npu.hooks writes it without the count, from 3.0.0 on behind a running number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from probe_core.model import Side

_TAIL = r"(forward|backward)%s(input|output|stack_info)((?:\.\d{1,9}){0,50})$"
_PTDBG = re.compile(r"(.+)([._])(\d{1,9})\2" + _TAIL % r"\2", re.DOTALL)
_HOOKS = re.compile(r"(?:\d{1,12}_)?(.+)_" + _TAIL % "_", re.DOTALL)
_SIDES = {"input": Side.INPUT, "output": Side.OUTPUT, "stack_info": None}


class RowName(NamedTuple):
    """The parts of a row's name.

    Attributes:
        head: The API with its scope, such as ``Functional.conv2d``, or ``Module.`` with path and class.
        number: The number of the call as the tool counted it; -1 if it did not.
        phase: ``forward`` or ``backward``.
        side: The side of the value; None for the row of a call stack.
        path: The position of the value, such as ``0.1``; ``0`` for the only output.
    """

    head: str
    number: int
    phase: str
    side: Side | None
    path: str

    @property
    def is_module(self) -> bool:
        """True for the call of a module."""
        return self.head.startswith("Module.")

    def key(self, count: int) -> str:
        """Return the name of the call that has the number ``count``."""
        if self.is_module:
            return f"{self.head}.{self.phase}.{count}"
        return f"{self.head}.{count}.{self.phase}"


def ptdbg_name(name: str) -> RowName | None:
    """Return the parts of a row's name in a file of ptdbg_ascend; None if it has another form."""
    match = _PTDBG.match(name)
    if match is None:
        return None
    head, joint, count, phase, side, path = match.groups()
    return RowName(_head(head, joint), int(count), phase, _SIDES[side], path[1:] or "0")


def hooks_name(name: str) -> RowName | None:
    """Return the parts of a row's name in a file of torch_npu.hooks; None if it has another form.

    The tool calls the gradients of inputs ``input``; they are results of the backward call: its output.
    """
    match = _HOOKS.match(name)
    if match is None:
        return None
    head, phase, word, path = match.groups()
    side = _SIDES[word]
    if phase == "backward" and side is not None:
        side = Side.OUTPUT if side is Side.INPUT else Side.INPUT
    return RowName(_head(head, "_"), -1, phase, side, path[1:] or "0")


@lru_cache(maxsize=4096)
def _head(text: str, joint: str) -> str:
    """Return the API or the module of a name in probe's words."""
    family, _, rest = text.partition(joint)
    if rest and (scope := families().get(family)):
        return f"{scope}.{rest}"
    return f"Module.{rest if family == 'Module' and rest else text}"


@lru_cache(maxsize=1)
def families() -> Mapping[str, str]:
    """Return the scope of each family."""
    import yaml

    text = resources.files("probe_legacy.reading").joinpath("families.yaml").read_text("utf-8")
    table: dict[str, str] = yaml.safe_load(text)
    return table
