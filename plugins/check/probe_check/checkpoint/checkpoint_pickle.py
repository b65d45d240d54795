"""Pickles of checkpoints as data: nothing in them is imported, called or run.

Objects of unknown classes become ``OpaqueObject``, because checkpoints contain the arguments of a training. A
pickle that refers to functions which run code or open files is refused, although nothing would run them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from probe_recording.reading.pickle_data import MARK, PickledCall, PickledName, PickleError, PickleMachine

from probe_core.files.packaged import load_yaml

MAX_LONG_BYTES = 1024
_ENCODE_FUNCTION = PickledName("_codecs", "encode")
_KEY_TYPES = (str, int, float, bytes, type(None))


@dataclass(frozen=True, slots=True)
class StorageReference:
    """A storage that a pickle refers to.

    Attributes:
        kind: The name of its class, such as ``FloatStorage``.
        key: Its key in the file.
        count: The number of its elements.
    """

    kind: str
    key: str
    count: int


@dataclass(eq=False, slots=True)
class OpaqueObject:
    """An object of a class that is not imported.

    Attributes:
        kind: The class, or the function that returns the object.
        arguments: The arguments of the call.
        state: Its attributes.
    """

    kind: PickledName
    arguments: tuple[Any, ...] = ()
    state: dict[Any, Any] = field(default_factory=dict)


def load_pickle_names() -> dict[str, Any]:
    """Return the content of pickle_names.yaml."""
    names: dict[str, Any] = load_yaml(__package__, "pickle_names.yaml")
    return names


class CheckpointMachine(PickleMachine):
    """A machine for the pickles of checkpoints."""

    def resolve(self, module: str, name: str) -> Any:
        """Return a name; a name that only attacks need ends the reading."""
        names = load_pickle_names()
        parts = module.split(".")
        prefixes = {".".join(parts[: n + 1]) for n in range(len(parts))}
        is_builtin = module in ("builtins", "__builtin__")
        if prefixes & set(names["dangerous_modules"]) or (is_builtin and name in names["dangerous_builtins"]):
            raise PickleError(f"its pickle asks for {module}.{name}, which no checkpoint needs; it was not run")
        return PickledName(module, name)

    def call(self, function: PickledName, arguments: tuple[Any, ...]) -> Any:
        """Return the data that a call creates."""
        name = function.name
        if name in ("OrderedDict", "dict") and not arguments:
            return {}
        if name == "defaultdict":
            return {}
        if name in ("list", "tuple", "Size", "set", "frozenset") and len(arguments) == 1:
            return _check_sequence(arguments[0])
        if name == "__newobj__" and arguments and isinstance(arguments[0], PickledName):
            return self.call(arguments[0], arguments[1:]) if len(arguments) > 1 else OpaqueObject(arguments[0])
        if name == "_reconstructor" and arguments and isinstance(arguments[0], PickledName):
            return OpaqueObject(arguments[0])
        if function == _ENCODE_FUNCTION and len(arguments) == 2 and isinstance(arguments[0], str):
            return arguments[0].encode("latin-1")  # how bytes are pickled by protocol 2
        if name.startswith("_rebuild_"):
            return PickledCall(function, arguments)
        return OpaqueObject(function, arguments)

    def refer(self, reference: Any) -> Any:
        """Return the storage that the pickle refers to, or None for another object."""
        if not isinstance(reference, tuple) or not reference:
            raise PickleError("its pickle refers to something that is not a storage")
        if reference[0] == "module":  # a class with its source code, of old versions
            return reference[1]
        tag, kind, key, _, count = reference[:5] if len(reference) >= 5 else (None,) * 5
        if tag != "storage" or not isinstance(kind, PickledName) or type(count) is not int or count < 0:
            raise PickleError("its storages are not described as torch.save describes them")
        return StorageReference(kind.name, str(key), count)

    def is_key(self, key: Any) -> bool:
        """Return True for keys whose hash takes constant time."""
        if isinstance(key, tuple):
            return len(key) < 100 and all(isinstance(item, _KEY_TYPES) for item in key)
        return isinstance(key, (*_KEY_TYPES, OpaqueObject))

    def set_state(self, state: Any) -> None:
        """Note the attributes of an object."""
        target = self.stack[-1]
        if isinstance(target, OpaqueObject):
            items = state if isinstance(state, tuple) and len(state) == 2 else (state,)
            for item in items:
                if isinstance(item, dict):
                    target.state.update(item)
            if not any(isinstance(item, dict) for item in items):
                target.state["state"] = state

    # -- instructions that descriptions of tensors do not have -----------------------------------------

    def long(self, form: str) -> None:
        """Push an integer of any size."""
        size = self.number(form)
        if not 0 <= size <= MAX_LONG_BYTES:
            raise PickleError("its pickle has an integer of an absurd size")
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def push_number_line(self) -> None:
        """Push an integer that is written as text."""
        text = self.line()
        booleans = {"00": False, "01": True}
        self.stack.append(booleans[text] if text in booleans else int(text.removesuffix("L")))

    def add_items(self) -> None:
        """Add items to a set, which is a list here."""
        items = self.pop_to_mark()
        if not isinstance(self.stack[-1], list):
            raise PickleError("its pickle adds items to something that is not a set")
        self.stack[-1].extend(items)

    def push_new_object(self, *, has_keywords: bool = False) -> None:
        """Push an object that ``__new__`` of its class would return."""
        if has_keywords:
            self.stack.pop()
        arguments, kind = self.stack.pop(), self.stack.pop()
        if not isinstance(kind, PickledName):
            raise PickleError("its pickle constructs an object of something that is not a class")
        self.stack.append(self.call(kind, tuple(arguments)))

    def push_instance(self) -> None:
        """Push an instance of a class that is named in the instruction."""
        module, name = self.line(), self.line()
        kind = self.resolve(module, name)
        self.stack.append(self.call(kind, tuple(self.pop_to_mark())))

    def push_object_of_class(self) -> None:
        """Push an instance of the class above the mark."""
        items = self.pop_to_mark()
        if not items or not isinstance(items[0], PickledName):
            raise PickleError("its pickle constructs an object of something that is not a class")
        self.stack.append(self.call(items[0], tuple(items[1:])))


def _check_sequence(items: Any) -> Any:
    if not isinstance(items, (list, tuple)):
        raise PickleError("its pickle makes a list of something that is no list")
    return items


def _create_push(read: Any) -> Any:
    return lambda machine: machine.stack.append(read(machine))


CheckpointMachine.steps = {
    **PickleMachine.steps,
    b"0": lambda m: m.stack.pop(),
    b"1": lambda m: m.pop_to_mark(),
    b"2": lambda m: m.stack.append(m.stack[-1]),
    b"I": CheckpointMachine.push_number_line,
    b"L": CheckpointMachine.push_number_line,
    b"F": _create_push(lambda m: float(m.line())),
    b"S": _create_push(lambda m: m.line().strip("'\"")),
    b"V": _create_push(lambda m: m.line()),
    b"T": _create_push(lambda m: m.take(m.number("<I")).decode("latin-1")),
    b"U": _create_push(lambda m: m.take(m.number("<B")).decode("latin-1")),
    b"B": _create_push(lambda m: m.take(m.number("<I"))),
    b"C": _create_push(lambda m: m.take(m.number("<B"))),
    b"\x8d": _create_push(lambda m: m.text("<Q")),
    b"\x8e": _create_push(lambda m: m.take(m.number("<Q"))),
    b"\x96": _create_push(lambda m: m.take(m.number("<Q"))),
    b"\x8b": lambda m: m.long("<i"),
    b"\x8f": lambda m: m.stack.append([]),
    b"\x90": CheckpointMachine.add_items,
    b"\x91": lambda m: m.stack.append(m.pop_to_mark()),
    b"\x81": CheckpointMachine.push_new_object,
    b"\x92": lambda m: m.push_new_object(has_keywords=True),
    b"i": CheckpointMachine.push_instance,
    b"o": CheckpointMachine.push_object_of_class,
    b"P": _create_push(lambda m: m.refer(m.line())),
    b"p": lambda m: m.memo.__setitem__(int(m.line()), m.stack[-1]),
    b"g": _create_push(lambda m: m.memo[int(m.line())]),
    b"d": lambda m: m.stack.append(_create_dict(m, m.pop_to_mark())),
    b"l": lambda m: m.stack.append(m.pop_to_mark()),
}


def _create_dict(machine: CheckpointMachine, items: Sequence[Any]) -> dict[Any, Any]:
    if not all(map(machine.is_key, items[::2])):
        raise PickleError("its pickle has keys that are neither texts nor numbers")
    return dict(zip(items[::2], items[1::2]))


def interpret_checkpoint(program: bytes) -> tuple[Any, int]:
    """Return the data that a pickle describes, and the number of its bytes.

    Raises:
        PickleError: The pickle is damaged, or contains something that is not supported.
    """
    machine = CheckpointMachine(program)
    try:
        value = machine.run()
    except PickleError:
        raise
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError, struct.error, MemoryError):
        raise PickleError("its pickle is damaged") from None
    if value is MARK:
        raise PickleError("its pickle is damaged")
    return value, machine.position
