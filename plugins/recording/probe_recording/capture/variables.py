"""Recording of variables that the script saves by name, at level debug (docs/formats.md#debug-json)."""

from __future__ import annotations

import warnings
from typing import Any

from probe_recording.sessions.session import Session
from probe_recording.settings.config import ConfigWarning
from probe_recording.values.leaves import Tree
from probe_recording.values.tensor_store import Entry


def save_variable(session: Session, variable: Any, name: str, backward: bool) -> None:
    """Record a variable.

    Args:
        session: The session of the step.
        variable: A tensor, a number, a text, or lists and dicts of them.
        name: The name of its record, without count.
        backward: True to record the gradients of its tensors too, when they arrive.
    """
    number = session.number(name)
    key = f"{name}.{number}.debug"
    try:
        with session.quiet():
            tree = session.collector.tree(variable, key, session.save_for(key))
        if tree is None and variable is not None:
            session.take_back(name, number)
            warnings.warn(
                f"{name}: an object of the class {type(variable).__name__} cannot be recorded, so nothing is "
                "saved; pass tensors, numbers, texts, or lists and dicts of them",
                ConfigWarning,
                stacklevel=4,
            )
            return
        session.add(key, tree)
        if backward:
            _Gradients(session, name, number).expect(variable)
    except Exception as error:
        session.log_failure("save", key, error)


class _Gradients:
    """The gradients of one saved variable, in the same nested structure."""

    def __init__(self, session: Session, name: str, number: int) -> None:
        self._session = session
        self._name = f"{name}_grad"
        self._number = number
        self._key = ""
        self._entry: Entry | None = None
        self._shape: Tree = None

    def expect(self, variable: Any) -> None:
        """Hook every tensor that will have a gradient."""
        self._shape = self._walk_value(variable, ())

    def _walk_value(self, value: Any, path: tuple[Any, ...]) -> Tree:
        if isinstance(value, (list, tuple)):
            return [self._walk_value(item, (*path, i)) for i, item in enumerate(value)]
        if isinstance(value, dict):
            return {str(key): self._walk_value(item, (*path, str(key))) for key, item in value.items()}
        if self._session.will_have_gradient(value):
            self._session.expect_gradient(value, lambda gradient: self._record_gradient(path, gradient))
        return None

    def _find_free_key(self) -> str:
        """Return the name for the record of gradients, with the next count that no saved variable has."""
        number = self._number
        while self._session.has(f"{self._name}.{number}.debug"):
            number += 1
        return f"{self._name}.{self._session.number_from(self._name, number)}.debug"

    def _record_gradient(self, path: tuple[Any, ...], gradient: Any) -> None:
        session = self._session
        if not session.active:
            return
        try:
            self._key = self._key or self._find_free_key()
            name = ".".join(map(str, (self._key, *path)))
            with session.quiet():
                leaf = session.collector.tree(gradient, name, session.save_for(self._key))
            if self._entry is None:
                self._entry = session.open(self._key, self._shape)
            if not path:
                self._entry.fields = leaf
            else:
                place = self._entry.fields
                for step in path[:-1]:
                    place = place[step]
                place[path[-1]] = leaf
            session.note_arrival(self._entry)
        except Exception as error:
            session.log_failure("save", self._key, error)
