"""Names of the rows of older tools, parsed into the names of probe.

ptdbg_ascend up to 4.x writes ``Functional_conv2d_1_backward_output.0``; 6.0 writes dots in place of underscores.
torch_npu.hooks writes the name without the call number; since 3.0.0, a running number precedes the name. A call
has many rows, so parsed calls and places are cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from probe_core.files.packaged import load_yaml
from probe_core.model import Side
from probe_core.store.names import format_key, has_module_scope

STACK = "stack_info"
"""The place of the rows of call stacks."""
_ROW = re.compile(r"([^/\\\0]+)[._](input|output|stack_info)((?:\.\d{1,9}){0,50})", re.DOTALL)
_CALL = re.compile(r"(.+)([._])(\d{1,9})\2(forward|backward)$", re.DOTALL)
_HOOKS_CALL = re.compile(r"(.+)_(forward|backward)$", re.DOTALL)
MAX_NUMBER_DIGITS = 12
"""Maximum number of digits of the running number before a name."""
MAX_CACHED_PLACES = 4096
"""Maximum number of cached places of values for each phase."""


class CallName(NamedTuple):
    """The parts of a call's name.

    Attributes:
        head: The API with its scope, such as ``Functional.conv2d``, or ``Module.`` with path and class.
        number: The number of the call in the file of the tool; -1 if the tool wrote no number.
        phase: ``forward`` or ``backward``.
    """

    head: str
    number: int
    phase: str

    @property
    def is_module(self) -> bool:
        """True for the call of a module."""
        return has_module_scope(self.head)

    def format_key(self, number: int) -> str:
        """Return the name of the call that has this number."""
        return format_key(self.head, number, self.phase)


RowName = tuple[CallName, str]
"""The name of a call, and the place of a value in the call, such as ``input.0.1`` or ``STACK``."""


def parse_ptdbg_name(name: str) -> RowName | None:
    """Return the parts of a row's name in a file of ptdbg_ascend; None if it has another form."""
    parts = _ROW.fullmatch(name)
    if parts is None:
        return None
    text, side, path = parts.groups()
    call = _parse_ptdbg_call(text)
    return (call, _format_place(side, path)) if call else None


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
    return call, _format_place(side, path)


class RowNames:
    """Parser of the row names of a file, which is fast if a row belongs to the same call as the previous row.

    Args:
        parse: The function that parses a name.
    """

    def __init__(self, parse: Callable[[str], RowName | None]) -> None:
        self._parse = parse
        self._call: CallName | None = None
        self._prefix = ""
        self._size = 0
        self._places_by_phase: dict[str, dict[str, str]] = {}
        self._places: dict[str, str] = {}

    def parse_name(self, name: str) -> RowName | None:
        """Return the parts of a name; None if it has another form."""
        if self._call is not None and name.startswith(self._prefix):
            place = self._places.get(name[self._size :])
            if place is not None:
                return self._call, place
        row_name = self._parse(name)
        match = _ROW.fullmatch(name)
        if row_name is not None and match is not None:
            self._call, place = row_name
            self._size = match.end(1) + 1
            self._prefix = name[: self._size]
            self._places = self._places_by_phase.setdefault(self._call.phase, {})
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
def _format_place(side: str, path: str) -> str:
    return side if side == STACK else f"{side}{path or '.0'}"


@lru_cache(maxsize=4096)
def parse_place(place: str) -> tuple[Side, str]:
    """Return the side and the path of a place."""
    side, _, path = place.partition(".")
    return Side(side), path


@lru_cache(maxsize=4096)
def _translate_head(text: str, joint: str) -> str:
    """Return the API or the module of a name in the form of probe."""
    family, _, rest = text.partition(joint)
    if rest and (scope := load_yaml(__package__, "families.yaml").get(family)):
        return f"{scope}.{rest}"
    return f"Module.{rest if family == 'Module' and rest else text}"
