"""Call stacks of recorded calls, each kept once, and the distinction of operators from method calls.

Recording a stack only collects the code objects of its frames and the positions in them; the texts of
``stack.json`` are made once for each stack, when it is written.
"""

from __future__ import annotations

import dis
import linecache
import runpy
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from probe_core.safe_text import format_safe_json
from probe_recording.values.leaves import quote

Place = tuple[int, int]
"""The id of a frame's code object, and the position of the frame's instruction in it."""

Stack = tuple[int, ...]
"""Ids of code objects and positions in them, alternating, innermost frame first."""

StackFinder = Callable[[FrameType, dict[bytes, Stack], Callable[[FrameType], Stack]], Stack]
"""A function that returns the stack from a frame outwards, such as ``find_stack`` of ``_frames.c``.

Its arguments are the frame, a dict that it uses to remember stacks, and a function that makes a missing one.
"""

RUNPY = runpy.__file__
STAND_IN = "<recorded>"
"""The function name of frames that imitate the caller's line, so that warnings name that line."""
OPERATOR_CALLERS = frozenset({"sum", "max", "min", "sorted", "reduce", "accumulate", "prod"})
"""Python functions that apply operators to their arguments."""

_OPERATORS = ("BINARY_", "INPLACE_", "UNARY_", "COMPARE_OP")
_own: tuple[str, ...] = (str(Path(__file__).parent), "<frozen runpy>", RUNPY)
_launchers: set[str] = set()
_codes: dict[int, CodeType] = {}
_operators: dict[tuple[int, int, str], bool] = {}
_known: dict[Stack, Stack] = {}
_stacks: dict[bytes, Stack] = {}
_find_stack: StackFinder | None = None


def belongs_to_recorder(package: Path, launcher: str = "") -> None:
    """Leave the frames of a recorder's package out of call stacks.

    Args:
        package: The directory of the package.
        launcher: The name of a file in it that runs scripts; frames outside of that file are left out too.
    """
    global _own
    _own = tuple(dict.fromkeys((*_own, str(package))))
    if launcher:
        _launchers.add(str(package / launcher))


def is_operator(frame: FrameType, method: str) -> bool:
    """Return True if the current instruction of ``frame`` is an operator rather than a call of ``method``.

    A call counts as an operator in two cases: the code names ``sum`` or a similar function but not the
    method, or the code names the dunder method of the operator.
    """
    code = frame.f_code
    place = id(code), frame.f_lasti, method
    by_operator = _operators.get(place)
    if by_operator is None:
        _codes[place[0]] = code
        name = dis.opname[code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""
        by_operator = name.startswith(_OPERATORS) and name != "BINARY_SUBSCR"
        if method and not by_operator:
            names = code.co_names
            by_c = method not in names and not OPERATOR_CALLERS.isdisjoint(names)
            by_operator = "CALL" in name and (by_c or f"__{method}__" in names)
        _operators[place] = by_operator
    return by_operator


def stack_of(frame: FrameType | None) -> Stack:
    """Return the stack from ``frame`` outwards."""
    if _find_stack is not None and frame is not None:
        return _find_stack(frame, _stacks, _walk)
    return _walk(frame)


def use_stack_finder(function: StackFinder) -> None:
    """Make ``stack_of`` use a compiled function of a framework's recorder."""
    global _find_stack
    _find_stack = function


def _walk(frame: FrameType | None) -> Stack:
    """Return the stack from ``frame`` outwards; equal stacks are one object."""
    places: list[int] = []
    add = places.append
    start = frame
    while frame is not None:
        add(id(frame.f_code))
        add(frame.f_lasti)
        frame = frame.f_back
    stack = tuple(places)
    cached = _known.get(stack)
    if cached is not None:
        return cached
    _remember(start)
    _known[stack] = stack
    return stack


def _remember(frame: FrameType | None) -> None:
    """Keep the code objects of the frames alive, so that their ids stay unique."""
    while frame is not None:
        _codes[id(frame.f_code)] = frame.f_code
        frame = frame.f_back


def list_stack_files(stack: Stack) -> list[str]:
    """Return the files of the frames, innermost first."""
    return [_codes[number].co_filename for number in stack[::2]]


def list_stack_frames(stack: Stack) -> list[tuple[str, str]]:
    """Return the file and the function of each frame, innermost first."""
    return [(_codes[number].co_filename, _codes[number].co_name) for number in stack[::2]]


class StackTable:
    """The call stacks of a step, each with the names of the records that share it."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[Stack, list[str]]] = {}

    def add(self, key: str, stack: Stack) -> None:
        """Add the call stack of a record, as ``stack_of`` returned it."""
        entry = self._names.get(id(stack))  # equal stacks are one object
        if entry is None:
            self._names[id(stack)] = stack, [key]
        else:
            entry[1].append(key)

    def text(self) -> str:
        """Return the content of ``stack.json``, in which records are grouped by stack.

        The format is docs/formats.md#stack-json; the innermost frame comes first.
        """
        groups = []
        for number, (stack, names) in enumerate(self._names.values()):
            lines = _texts.get(id(stack))
            if lines is None:
                lines = _texts[id(stack)] = format_safe_json(list_stack_lines(stack))
            groups.append(f'"{number}": [[{", ".join(map(quote, names))}], {lines}]')
        return "{" + ",\n".join(groups) + "}\n"


def list_stack_lines(stack: Stack) -> list[str]:
    """Return the frames as texts, innermost first, without those of recorders."""
    texts = []
    for number, place in zip(stack[::2], stack[1::2]):
        if _codes[number].co_filename in _launchers:
            break  # the frames further out belong to the launcher, not to the script
        if line := _format_line(number, place):
            texts.append(line)
    return texts or ["The call stack retrieval failed."]


_lines: dict[Place, str] = {}
_texts: dict[int, str] = {}
"""The texts of stacks by the ids of these, which ``_known`` keeps alive."""


def _format_line(number: int, place: int) -> str:
    text = _lines.get((number, place))
    if text is None:
        code = _codes[number]
        line = _find_line_number(code, place)
        source = linecache.getline(code.co_filename, line).strip()
        shown = source and not code.co_filename.startswith(_own) and code.co_name != STAND_IN
        text = f"File {code.co_filename}, line {line}, in {code.co_name}, \n {source}" if shown else ""
        _lines[number, place] = text
    return text


def _find_line_number(code: CodeType, place: int) -> int:
    line = code.co_firstlineno
    for start, number in dis.findlinestarts(code):
        if start > place:
            break
        if number is not None:
            line = number
    return line
