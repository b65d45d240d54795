"""An interpreter of pickles as data, limited to the instructions that describe tensors.

Nothing is imported or called: ``GLOBAL`` gives a name, ``REDUCE`` a note of the function and its arguments,
``BINPERSID`` the description of a storage. Any instruction that no tensor needs ends the reading.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class PickleError(ValueError):
    """An error in a pickle, or a pickle that does not describe a plain tensor."""


@dataclass(frozen=True, slots=True)
class Global:
    """The name of an object in a module, which is never imported."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a pickle asks for, which is never made."""

    function: Global
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that a pickle refers to: its class and its key in the file."""

    kind: Global
    key: str


_KNOWN_MODULES = frozenset({"torch", "torch._utils", "torch.storage", "collections"})
_KNOWN_CALLS = frozenset({"_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter", "OrderedDict"})
_MARK = object()


def interpret(program: bytes) -> Any:
    """Return the data that a pickle describes.

    Raises:
        PickleError: The pickle is cut off, or has an instruction or a name that no tensor needs.
    """
    return _Machine(program).run()


class _Machine:
    def __init__(self, program: bytes) -> None:
        self._program = program
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self._take(1)
            if code == b".":
                return self._stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise PickleError(f"its description uses instruction {code!r}, which no tensor needs")
            step(self)

    def _take(self, count: int) -> bytes:
        data = self._program[self._at : self._at + count]
        if len(data) < count:
            raise PickleError("its description is cut off")
        self._at += count
        return data

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def _line(self) -> str:
        end = self._program.find(b"\n", self._at)
        if end < 0:
            raise PickleError("its description is cut off")
        text = self._program[self._at : end].decode("ascii")
        self._at = end + 1
        return text

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _text(self, form: str) -> None:
        self._push(self._take(self._number(form)).decode("utf-8", "surrogatepass"))

    def _long(self) -> None:
        self._push(int.from_bytes(self._take(self._number("<B")), "little", signed=True))

    def _global(self, module: str, name: str) -> None:
        if module not in _KNOWN_MODULES:
            raise PickleError(f"it asks for {module}.{name}, which no tensor needs; it was not run")
        self._push(Global(module, name))

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleError("its description names something that is no name")
        self._global(module, name)

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, Global):
            raise PickleError("its description calls something that is no function")
        if function.name not in _KNOWN_CALLS:
            raise PickleError(f"tensors made by {function.name!r:.80} are not supported")
        if function.name == "OrderedDict":
            self._push({})
        else:
            self._push(Call(function, tuple(arguments)))

    def _storage(self) -> None:
        parts = self._stack.pop()
        tag, kind, key = parts[:3]
        if tag != "storage" or not isinstance(kind, Global) or not isinstance(key, str):
            raise PickleError("its storage is not described as torch.save does")
        self._push(Storage(kind, key))

    def _set_items(self, items: list[Any]) -> None:
        mapping = self._stack[-1]
        if not isinstance(mapping, dict):
            raise PickleError("its description sets items of something that is no dict")
        if not all(isinstance(key, (str, int)) for key in items[::2]):
            raise PickleError("its description has keys that are neither texts nor numbers")
        mapping.update(zip(items[::2], items[1::2]))

    def _pop_pair(self) -> list[Any]:
        value, key = self._stack.pop(), self._stack.pop()
        return [key, value]

    def _append(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise PickleError("its description appends to something that is no list")
        self._stack[-1].extend(items)

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise PickleError("its description is cut off")
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        self._push(tuple(items))


Step = Callable[[_Machine], None]


def _constant(value: Any) -> Step:
    return lambda machine: machine._push(value)


_STEPS: dict[bytes, Step] = {
    b"\x80": lambda m: _drop(m._take(1)),  # PROTO
    b"\x95": lambda m: _drop(m._take(8)),  # FRAME
    b"(": _constant(_MARK),
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b")": _constant(()),
    b"}": lambda m: m._push({}),
    b"]": lambda m: m._push([]),
    b"J": lambda m: m._push(m._number("<i")),
    b"K": lambda m: m._push(m._number("<B")),
    b"M": lambda m: m._push(m._number("<H")),
    b"\x8a": _Machine._long,
    b"G": lambda m: m._push(struct.unpack(">d", m._take(8))[0]),
    b"X": lambda m: m._text("<I"),
    b"\x8c": lambda m: m._text("<B"),
    b"c": lambda m: m._global(m._line(), m._line()),
    b"\x93": _Machine._stack_global,
    b"q": lambda m: m._memo.__setitem__(m._number("<B"), m._stack[-1]),
    b"r": lambda m: m._memo.__setitem__(m._number("<I"), m._stack[-1]),
    b"\x94": lambda m: m._memo.__setitem__(len(m._memo), m._stack[-1]),
    b"h": lambda m: m._push(m._memo[m._number("<B")]),
    b"j": lambda m: m._push(m._memo[m._number("<I")]),
    b"t": lambda m: m._push(tuple(m._pop_to_mark())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"R": _Machine._reduce,
    b"Q": _Machine._storage,
    b"s": lambda m: m._set_items(m._pop_pair()),
    b"u": lambda m: m._set_items(m._pop_to_mark()),
    b"a": lambda m: m._append([m._stack.pop()]),
    b"e": lambda m: m._append(m._pop_to_mark()),
    b"b": lambda m: _drop(m._stack.pop()),  # BUILD: attributes beside the data are dropped
}


def _drop(_: object) -> None:
    """Discard a value."""
