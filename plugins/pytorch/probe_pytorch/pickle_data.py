"""Pickles of ``.pt`` files that hold a tensor, as data: nothing in them is imported or called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from probe_recording.reading.pickle_data import PickledCall, PickledName, PickleError, PickleMachine


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that a pickle refers to: its class and its key in the file."""

    kind: PickledName
    key: str


_ALLOWED_MODULES = frozenset({"torch", "torch._utils", "torch.storage", "collections"})
_ALLOWED_CALLS = frozenset({"_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter", "OrderedDict"})


def interpret(program: bytes) -> Any:
    """Return the data that a pickle describes.

    Raises:
        PickleError: The pickle is cut off, or has an instruction or a name that no tensor needs.
    """
    return _TensorMachine(program).run()


class _TensorMachine(PickleMachine):
    """A machine for the few names and calls that describe a tensor."""

    def resolve(self, module: str, name: str) -> Any:
        if module not in _ALLOWED_MODULES:
            raise PickleError(f"it asks for {module}.{name}, which no tensor needs; it was not run")
        return PickledName(module, name)

    def call(self, function: PickledName, arguments: tuple[Any, ...]) -> Any:
        if function.name not in _ALLOWED_CALLS:
            raise PickleError(f"tensors made by {function.name!r:.80} are not supported")
        return {} if function.name == "OrderedDict" else PickledCall(function, arguments)

    def refer(self, reference: Any) -> Any:
        tag, kind, key = reference[:3]
        if tag != "storage" or not isinstance(kind, PickledName) or not isinstance(key, str):
            raise PickleError("its storage is not described as torch.save does")
        return Storage(kind, key)
