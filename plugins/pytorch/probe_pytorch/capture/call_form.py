"""The form in which a call was written: its positional and its keyword arguments.

A Python function of torch passes itself to the mode with its arguments rearranged and its defaults filled
in. The bytecode instruction that made the call shows the original form.
"""

from __future__ import annotations

import dis
from bisect import bisect_right
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Union

_CALL_OPCODES = ("CALL", "CALL_KW", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_METHOD")


@dataclass(frozen=True, slots=True)
class CallForm:
    """The number of positional arguments (without a method's object) and the names of the keywords."""

    positional: int
    keywords: tuple[str, ...]


_forms: dict[tuple[int, int], CallForm | None] = {}
_tables: dict[int, tuple[CodeType, list[int], list[dis.Instruction]]] = {}


def call_form(frame: FrameType) -> CallForm | None:
    """Return the form of the call that ``frame`` is making; None if ``*`` or ``**`` hides it."""
    key = id(frame.f_code), frame.f_lasti
    if key not in _forms:
        _forms[key] = _read(frame)
    return _forms[key]


def _find_instruction(frame: FrameType) -> tuple[list[dis.Instruction], int]:
    """Return the instructions of a frame's code and the index of the current one."""
    code = frame.f_code
    if id(code) not in _tables:
        instructions = [item for item in dis.get_instructions(code) if item.opname != "EXTENDED_ARG"]
        _tables[id(code)] = code, [item.offset for item in instructions], instructions
    _, offsets, instructions = _tables[id(code)]
    return instructions, bisect_right(offsets, frame.f_lasti) - 1


def _read(frame: FrameType) -> CallForm | None:
    code = frame.f_code
    instructions, at = _find_instruction(frame)
    if at < 0 or instructions[at].opname not in _CALL_OPCODES:
        return None
    call = instructions[at]
    count = call.arg or 0
    keywords: tuple[str, ...] = ()
    before = at - 1
    if before >= 0 and instructions[before].opname == "PRECALL":
        before -= 1
    if before >= 0:
        earlier = instructions[before]
        if earlier.opname == "KW_NAMES":
            keywords = code.co_consts[earlier.arg or 0]
        elif call.opname in ("CALL_KW", "CALL_FUNCTION_KW"):
            if not isinstance(earlier.argval, tuple):
                return None
            keywords = earlier.argval
    return CallForm(count - len(keywords), keywords)


def is_reflected(frame: FrameType, tensor: Any) -> bool:
    """Return True if the current operator of ``frame`` has ``tensor`` on its right, as in ``2 * tensor``.

    The mode receives the tensor first either way. The instructions before the operator show the side if one
    of the operands is a constant or a global; otherwise False is returned.
    """
    key = id(frame.f_code), frame.f_lasti
    if key not in _operands:
        _operands[key] = _read_operands(frame)
    left, right = _operands[key]
    if isinstance(right, dis.Instruction) and right.opname == "LOAD_CONST":
        return False
    if isinstance(left, dis.Instruction) and left.opname == "LOAD_CONST":
        return True
    if right is not None and (value := _read_variable(frame, right)) is not _UNKNOWN:
        return value is tensor
    if left is not None and (value := _read_variable(frame, left)) is not _UNKNOWN:
        return value is not tensor
    return False


_UNKNOWN = object()
_Operand = Union[dis.Instruction, None]
_operands: dict[tuple[int, int], tuple[_Operand, _Operand]] = {}


def _read_operands(frame: FrameType) -> tuple[_Operand, _Operand]:
    """Return the instructions that pushed the left operand and, if it is a single load, the right one."""
    instructions, at = _find_instruction(frame)
    if at < 1:
        return None, None
    before = instructions[at - 1]
    if isinstance(before.argval, tuple) and before.opname.startswith("LOAD_FAST"):
        return None, None  # one instruction that loads two variables
    pushed = 0
    for place in range(at - 1, -1, -1):
        item = instructions[place]
        if item.opcode in dis.hasjrel or item.opcode in dis.hasjabs:
            return None, None
        pushed += dis.stack_effect(item.opcode, item.arg if item.opcode >= dis.HAVE_ARGUMENT else None)
        if pushed > 1:
            return None, None  # one instruction that loads both operands, or what they are made of
        if pushed == 1:
            return (instructions[place - 1] if place else None), (item if place == at - 1 else None)
    return None, None


def _read_variable(frame: FrameType, operand: _Operand) -> Any:
    """Return the value of the global that ``operand`` loads, or ``_UNKNOWN``.

    Local variables are not looked up: up to Python 3.12, reading ``f_locals`` keeps them alive.
    """
    if isinstance(operand, dis.Instruction) and operand.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
        return frame.f_globals.get(operand.argval, _UNKNOWN)
    return _UNKNOWN


def restore_arguments(
    function: Any, form: CallForm | None, is_method: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a Python function of torch as its caller wrote them.

    Args:
        function: The function.
        form: The form of the call; if it is None, arguments equal to their defaults are left out.
        is_method: True if the first argument is the object of a method call.
        args: The positional arguments that the mode received.
        kwargs: The keyword arguments that the mode received.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & 0x0C:  # *args or **kwargs: nothing was rearranged
        return args, kwargs
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = dict(zip(names, args))
    values.update(kwargs)
    defaults = _read_defaults(function, code, names)
    if form is not None:
        positional = form.positional + is_method
        wanted = (*names[:positional], *form.keywords)
        left = values.keys() - set(wanted)
        # all other arguments must have their defaults; otherwise the instruction called something else
        if all(name in values for name in wanted) and all(_is_default(defaults, k, values[k]) for k in left):
            positions = tuple(values[name] for name in names[:positional])
            return positions, {name: values[name] for name in form.keywords}
    return args, {k: v for k, v in kwargs.items() if not _is_default(defaults, k, v)}


_ABSENT = object()


def _is_default(defaults: dict[str, Any], name: str, value: Any) -> bool:
    return defaults.get(name, _ABSENT) is value


def _read_defaults(function: Any, code: CodeType, names: tuple[str, ...]) -> dict[str, Any]:
    defaults = dict(zip(reversed(names[: code.co_argcount]), reversed(function.__defaults__ or ())))
    defaults.update(function.__kwdefaults__ or {})
    return defaults
