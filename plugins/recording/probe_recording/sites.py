"""Where calls come from: call stacks, kept once each, and whether an operator or a method made the call.

Walking the frames of a call takes their code and the place in it; texts are made for each stack
only when it is written.
"""

from __future__ import annotations

import dis
import json
import linecache
import runpy
from pathlib import Path
from types import CodeType, FrameType

from probe_core.safe_text import safe_json

Place = tuple[int, int]
"""The id of a code object, and where in it the frame stands."""

Stack = tuple[int, ...]
"""Ids of code objects and places in them, alternating, innermost first."""

RUNPY = runpy.__file__
STAND_IN = "<recorded>"
"""The function's name in a frame that repeats the line of a caller, so that warnings name that line."""
USE_OPERATORS = frozenset({"sum", "max", "min", "sorted", "reduce", "accumulate", "prod"})
"""Functions that use operators on what they are given."""

_OPERATORS = ("BINARY_", "INPLACE_", "UNARY_", "COMPARE_OP")
_own: tuple[str, ...] = (str(Path(__file__).parent), "<frozen runpy>", RUNPY)
_launchers: set[str] = set()
_codes: dict[int, CodeType] = {}
_operators: dict[tuple[int, int, str], bool] = {}
_known: set[Stack] = set()


def belongs_to_recorder(package: Path, launcher: str = "") -> None:
    """Frames of files in ``package`` are no callers; a script's frames end where ``launcher`` runs it."""
    global _own
    _own = tuple(dict.fromkeys((*_own, str(package))))
    if launcher:
        _launchers.add(str(package / launcher))


def is_operator(frame: FrameType, method: str) -> bool:
    """True where the instruction that ``frame`` stands at is an operator, not a call of ``method``.

    A call in code that knows ``sum`` and the like, but not the method's name, is one of those: it uses
    the operator. So does one in code that knows the name of the operator's own method.
    """
    code = frame.f_code
    place = id(code), frame.f_lasti, method
    found = _operators.get(place)
    if found is None:
        _codes[place[0]] = code
        name = dis.opname[code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""
        found = name.startswith(_OPERATORS) and name != "BINARY_SUBSCR"
        if method and not found:
            names = code.co_names
            by_c = method not in names and not USE_OPERATORS.isdisjoint(names)
            found = "CALL" in name and (by_c or f"__{method}__" in names)
        _operators[place] = found
    return found


def stack_of(frame: FrameType | None) -> Stack:
    """The stack from ``frame`` outwards."""
    found: list[int] = []
    add = found.append
    start = frame
    while frame is not None:
        add(id(frame.f_code))
        add(frame.f_lasti)
        frame = frame.f_back
    stack = tuple(found)
    if stack not in _known:
        _known.add(stack)
        _remember(start)
    return stack


def _remember(frame: FrameType | None) -> None:
    """Keep the codes of the frames, so that their ids stay theirs."""
    while frame is not None:
        _codes[id(frame.f_code)] = frame.f_code
        frame = frame.f_back


def files_of(stack: Stack) -> list[str]:
    """The files of the frames, innermost first."""
    return [_codes[number].co_filename for number in stack[::2]]


def frames_of(stack: Stack) -> list[tuple[str, str]]:
    """The file and the function of each frame, innermost first."""
    return [(_codes[number].co_filename, _codes[number].co_name) for number in stack[::2]]


class Stacks:
    """The stacks of a step, each with the records that share it."""

    def __init__(self) -> None:
        self._names: dict[Stack, list[str]] = {}

    def add(self, key: str, stack: Stack) -> None:
        """The record ``key`` was made at ``stack``."""
        self._names.setdefault(stack, []).append(key)

    def text(self) -> str:
        """``stack.json``: records grouped by stack, frames innermost first (spec/dump 9.2)."""
        groups = []
        for number, (stack, names) in enumerate(self._names.items()):
            lines = _texts.get(stack)
            if lines is None:
                lines = _texts[stack] = safe_json(lines_of(stack))
            groups.append(f'"{number}": [{json.dumps(names)}, {lines}]')
        return "{" + ",\n".join(groups) + "}\n"


def lines_of(stack: Stack) -> list[str]:
    """The frames as texts, innermost first."""
    found = []
    for number, place in zip(stack[::2], stack[1::2]):
        if _codes[number].co_filename in _launchers:
            break  # what lies further out ran the script, not the model
        if line := _line(number, place):
            found.append(line)
    return found or ["The call stack retrieval failed."]


_lines: dict[Place, str] = {}
_texts: dict[Stack, str] = {}


def _line(number: int, place: int) -> str:
    text = _lines.get((number, place))
    if text is None:
        code = _codes[number]
        line = _line_number(code, place)
        source = linecache.getline(code.co_filename, line).strip()
        shown = source and not code.co_filename.startswith(_own) and code.co_name != STAND_IN
        text = f"File {code.co_filename}, line {line}, in {code.co_name}, \n {source}" if shown else ""
        _lines[number, place] = text
    return text


def _line_number(code: CodeType, place: int) -> int:
    line = code.co_firstlineno
    for start, number in dis.findlinestarts(code):
        if start > place:
            break
        if number is not None:
            line = number
    return line
