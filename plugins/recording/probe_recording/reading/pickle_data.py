"""An interpreter of pickles as data: nothing is imported, called or run.

``GLOBAL`` gives a name, ``REDUCE`` a note of the function and its arguments. A plugin derives a machine from
``PickleMachine``, which decides what its files may contain. An instruction without an entry in ``steps``
ends the reading. Instructions: Python's pickletools.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class PickleError(ValueError):
    """An error in a pickle, or a pickle with something that is not supported."""


class TruncatedPickle(PickleError):
    """A pickle that ends before its last instruction."""


@dataclass(frozen=True, slots=True)
class PickledName:
    """The name of an object in a module, which is never imported."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class PickledCall:
    """A call that a pickle asks for, which is never made."""

    function: PickledName
    arguments: tuple[Any, ...]


MARK = object()
"""The mark on the stack below the items of a collection."""


class PickleMachine:
    """A machine that executes the instructions of a pickle on plain data.

    Args:
        program: The pickle; what follows its last instruction is ignored.

    Attributes:
        steps: The supported instructions, by their codes.
        position: The number of bytes that were read.
    """

    steps: ClassVar[Mapping[bytes, Step]]

    def __init__(self, program: bytes) -> None:
        self._program = program
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return the data that the pickle describes.

        Raises:
            PickleError: The pickle is cut off, or contains something that is not supported.
            LookupError, ValueError, TypeError, struct.error: The pickle is damaged.
        """
        steps = self.steps
        while True:
            code = self.take(1)
            if code == b".":
                return self.stack.pop()
            step = steps.get(code)
            if step is None:
                raise PickleError(f"its description uses instruction {code!r}, which no tensor needs")
            step(self)

    # -- overridden by subclasses ----------------------------------------------------------------------

    def resolve(self, module: str, name: str) -> Any:
        """Return the representation of an object of a module."""
        return PickledName(module, name)

    def call(self, function: PickledName, arguments: tuple[Any, ...]) -> Any:
        """Return the representation of the result of a call."""
        return PickledCall(function, arguments)

    def refer(self, reference: Any) -> Any:
        """Return the representation of an object outside the pickle."""
        raise PickleError("its description refers to an object outside of it")

    def is_key(self, key: Any) -> bool:
        """Return True if a dict may have this key; its hash must be cheap."""
        return isinstance(key, (str, int))

    def set_state(self, state: Any) -> None:
        """Set the attributes of the object on top of the stack; by default they are dropped."""

    # -- reading ---------------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        data = self._program[self.position : self.position + count]
        if len(data) < count:
            raise TruncatedPickle("its description is cut off")
        self.position += count
        return data

    def number(self, form: str) -> int:
        """Return the next number, in a format of ``struct``."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def line(self) -> str:
        """Return the text up to the end of the line."""
        end = self._program.find(b"\n", self.position)
        if end < 0:
            raise TruncatedPickle("its description is cut off")
        text = self._program[self.position : end].decode("ascii")
        self.position = end + 1
        return text

    def text(self, form: str) -> str:
        """Return the next text, whose length is a number in a format of ``struct``."""
        return self.take(self.number(form)).decode("utf-8", "surrogatepass")

    def pop_to_mark(self) -> list[Any]:
        """Remove the items down to the mark from the stack, and return them."""
        items: list[Any] = []
        while (item := self.stack.pop()) is not MARK:
            items.append(item)
        return items[::-1]

    # -- instructions ----------------------------------------------------------------------------------

    def _long(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.number("<B")), "little", signed=True))

    def _global(self) -> None:
        module, name = self.line(), self.line()
        self.stack.append(self.resolve(module, name))

    def _stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleError("its description names something that is no name")
        self.stack.append(self.resolve(module, name))

    def _reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, PickledName):
            raise PickleError("its description calls something that is no function")
        self.stack.append(self.call(function, tuple(arguments)))

    def _set_items(self, items: list[Any]) -> None:
        mapping = self.stack[-1]
        if not isinstance(mapping, dict):
            raise PickleError("its description sets items of something that is no dict")
        if not all(map(self.is_key, items[::2])):
            raise PickleError("its description has keys that are neither texts nor numbers")
        mapping.update(zip(items[::2], items[1::2]))

    def _pop_pair(self) -> list[Any]:
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]

    def _append(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise PickleError("its description appends to something that is no list")
        self.stack[-1].extend(items)

    def _tuple(self, count: int) -> None:
        if len(self.stack) < count:
            raise TruncatedPickle("its description is cut off")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        self.stack.append(tuple(items))


Step = Callable[[Any], object]
"""An instruction; its argument is the machine."""


def _constant(value: Any) -> Step:
    return lambda machine: machine.stack.append(value)


PickleMachine.steps = {
    b"\x80": lambda m: m.take(1),  # PROTO
    b"\x95": lambda m: m.take(8),  # FRAME
    b"(": _constant(MARK),
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b")": _constant(()),
    b"}": lambda m: m.stack.append({}),
    b"]": lambda m: m.stack.append([]),
    b"J": lambda m: m.stack.append(m.number("<i")),
    b"K": lambda m: m.stack.append(m.number("<B")),
    b"M": lambda m: m.stack.append(m.number("<H")),
    b"\x8a": PickleMachine._long,
    b"G": lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
    b"X": lambda m: m.stack.append(m.text("<I")),
    b"\x8c": lambda m: m.stack.append(m.text("<B")),
    b"c": PickleMachine._global,
    b"\x93": PickleMachine._stack_global,
    b"q": lambda m: m.memo.__setitem__(m.number("<B"), m.stack[-1]),
    b"r": lambda m: m.memo.__setitem__(m.number("<I"), m.stack[-1]),
    b"\x94": lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    b"h": lambda m: m.stack.append(m.memo[m.number("<B")]),
    b"j": lambda m: m.stack.append(m.memo[m.number("<I")]),
    b"t": lambda m: m.stack.append(tuple(m.pop_to_mark())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"R": PickleMachine._reduce,
    b"Q": lambda m: m.stack.append(m.refer(m.stack.pop())),
    b"s": lambda m: m._set_items(m._pop_pair()),
    b"u": lambda m: m._set_items(m.pop_to_mark()),
    b"a": lambda m: m._append([m.stack.pop()]),
    b"e": lambda m: m._append(m.pop_to_mark()),
    b"b": lambda m: m.set_state(m.stack.pop()),
}
