"""Names of rows in the older tools' words, taken apart into probe's words.

ptdbg_ascend up to 4.x writes ``Functional_conv2d_1_backward_output.0``, 6.0 the same with dots, and
torch_npu.hooks writes it without the count, from 3.0.0 on behind a running number. There are many rows of one
call, so calls and places are taken apart once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from probe_core.model import Side

STACK = "stack_info"
"""The place of the rows of call stacks."""
_ROW = re.compile(r"([^/\\\0]+)[._](input|output|stack_info)((?:\.\d{1,9}){0,50})", re.DOTALL)
_CALL = re.compile(r"(.+)([._])(\d{1,9})\2(forward|backward)$", re.DOTALL)
_HOOKS_CALL = re.compile(r"(.+)_(forward|backward)$", re.DOTALL)
MAX_NUMBER_DIGITS = 12
"""Largest number of digits of the running number before a name."""
MAX_CACHED_PLACES = 4096
"""Limit on the places of values that are kept in memory for each phase."""


class CallName(NamedTuple):
    """The parts of a call's name.

    Attributes:
        head: The API with its scope, such as ``Functional.conv2d``, or ``Module.`` with path and class.
        number: The number of the call as the tool counted it; -1 if it did not.
        phase: ``forward`` or ``backward``.
    """

    head: str
    number: int
    phase: str

    @property
    def is_module(self) -> bool:
        """True for the call of a module."""
        return self.head.startswith("Module.")

    def format_key(self, number: int) -> str:
        """Return the name of the call that has this number."""
        if self.is_module:
            return f"{self.head}.{self.phase}.{number}"
        return f"{self.head}.{number}.{self.phase}"


RowName = tuple[CallName, str]
"""A call, and the place of a value in it, such as ``input.0.1``, or ``STACK``."""


def parse_ptdbg_name(name: str) -> RowName | None:
    """Return the parts of a row's name in a file of ptdbg_ascend; None if it has another form."""
    parts = _ROW.fullmatch(name)
    if parts is None:
        return None
    text, side, path = parts.groups()
    call = _parse_ptdbg_call(text)
    return (call, _place(side, path)) if call else None


def parse_hooks_name(name: str) -> RowName | None:
    """Return the parts of a row's name in a file of torch_npu.hooks; None if it has another form.

    The tool calls the gradients of inputs ``input``; they are results of the backward call: its output.
    """
    return parse_unnumbered_name(drop_number(name))


def drop_number(name: str) -> str:
    """Return the name of a row of torch_npu.hooks without the running number before it."""
    number, _, rest = name.partition("_")
    is_number = number.isdecimal() and number.isascii() and len(number) <= MAX_NUMBER_DIGITS
    return rest if rest and is_number else name


def parse_unnumbered_name(name: str) -> RowName | None:
    """Return the parts of a name that ``drop_number`` returned; None if it has another form."""
    parts = _ROW.fullmatch(name)
    if parts is None:
        return None
    text, side, path = parts.groups()
    call = _parse_hooks_call(text)
    if call is None:
        return None
    if call.phase == "backward":
        side = {"input": "output", "output": "input"}.get(side, side)
    return call, _place(side, path)


class RowNames:
    """Names of the rows of one file; a row of the same call as the one before it is quick to take apart.

    Args:
        take_apart: The function that takes a name apart.
    """

    def __init__(self, take_apart: Callable[[str], RowName | None]) -> None:
        self._take_apart = take_apart
        self._call: CallName | None = None
        self._prefix = ""
        self._size = 0
        self._known: dict[str, dict[str, str]] = {}
        self._places: dict[str, str] = {}

    def parse_name(self, name: str) -> RowName | None:
        """Return the parts of a name; None if it has another form."""
        if self._call is not None and name.startswith(self._prefix):
            place = self._places.get(name[self._size :])
            if place is not None:
                return self._call, place
        row_name = self._take_apart(name)
        match = _ROW.fullmatch(name)
        if row_name is not None and match is not None:
            self._call, place = row_name
            self._size = match.end(1) + 1
            self._prefix = name[: self._size]
            self._places = self._known.setdefault(self._call.phase, {})
            if len(self._places) < MAX_CACHED_PLACES:
                self._places[name[self._size :]] = place
        return row_name


@lru_cache(maxsize=1024)
def _parse_ptdbg_call(text: str) -> CallName | None:
    match = _CALL.match(text)
    return match and CallName(_translate_head(match[1], match[2]), int(match[3]), match[4])


@lru_cache(maxsize=1024)
def _parse_hooks_call(text: str) -> CallName | None:
    match = _HOOKS_CALL.match(text)
    return match and CallName(_translate_head(match[1], "_"), -1, match[2])


@lru_cache(maxsize=4096)
def _place(side: str, path: str) -> str:
    return side if side == STACK else f"{side}{path or '.0'}"


@lru_cache(maxsize=4096)
def parse_place(place: str) -> tuple[Side, str]:
    """Return the side and the path of a place."""
    side, _, path = place.partition(".")
    return Side(side), path


@lru_cache(maxsize=4096)
def _translate_head(text: str, joint: str) -> str:
    """Return the API or the module of a name in probe's words."""
    family, _, rest = text.partition(joint)
    if rest and (scope := load_families().get(family)):
        return f"{scope}.{rest}"
    return f"Module.{rest if family == 'Module' and rest else text}"


@lru_cache(maxsize=1)
def load_families() -> Mapping[str, str]:
    """Return the scope of each family."""
    import yaml

    text = resources.files(__package__).joinpath("families.yaml").read_text("utf-8")
    table: dict[str, str] = yaml.safe_load(text)
    return table
