"""One recorded step, read from and written to the files of a run directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from probe_core.store.files import (
    CONSTRUCT_FILE,
    DEFAULT_RECORD_FILES,
    FAMILIES_FIELD,
    PROBE_FIELD,
    UNRECORDED_FIELD,
)
from pytest_probe.value_text import TensorValue, format_leaf, parse_leaf

DUMP_FILE = DEFAULT_RECORD_FILES[0]
LADDER_FILE = "ladder.json"
SCHEMA = 1
VALUES = "values"
"""The field of a phase that holds its tensors."""
FRAMEWORK = "pytorch"
Tree = Union[TensorValue, None, bool, int, float, str, list[Any], dict[str, Any]]
"""The content of a record: JSON whose tensors are ``TensorValue``."""


@dataclass(frozen=True, slots=True)
class Call:
    """A record of a step.

    Attributes:
        fields: Its content.
        parent: The key of the module around it; None for none.
    """

    fields: Tree
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What was recorded while a function ran.

    Attributes:
        calls: The records by their keys, in the order of the run.
        notes: What the recorder noted of the whole step, such as the families of operators that it recorded.
        phases: The phases of a training step, with the fields of ``ladder.json``.
    """

    calls: Mapping[str, Call]
    notes: Mapping[str, Any] = field(default_factory=dict)
    phases: Sequence[Mapping[str, Any]] = ()

    def replace_tensors(self, change: Callable[[TensorValue], TensorValue]) -> Step:
        """Return the step with its tensors changed, in the order of the run."""
        calls = {key: replace(call, fields=map_tensors(call.fields, change)) for key, call in self.calls.items()}
        phases = [{**phase, VALUES: map_tensors(phase[VALUES], change)} for phase in self.phases]
        return replace(self, calls=calls, phases=phases)

    def tensors(self) -> Iterator[tuple[tuple[str | int, ...], TensorValue]]:
        """Yield each tensor with its path: the key of the record, then names and places."""
        for key, call in self.calls.items():
            yield from _iterate_tensors(call.fields, (key,))
        for phase in self.phases:
            yield from _iterate_tensors(phase[VALUES], (phase["phase"], phase["number"]))


def read_step(directory: Path) -> Step:
    """Return the step that a recorder wrote to a directory."""
    content = json.loads((directory / DUMP_FILE).read_text("utf-8"))
    construct = directory / CONSTRUCT_FILE
    parents = json.loads(construct.read_text("utf-8")) if construct.is_file() else {}
    calls = {key: Call(_parse_fields(fields), parents.get(key)) for key, fields in content["data"].items()}
    notes = content.get(PROBE_FIELD) or {}
    families = {name: scopes for name, scopes in notes.get(FAMILIES_FIELD, {}).items() if scopes}
    fields = ((FAMILIES_FIELD, families), (UNRECORDED_FIELD, notes.get(UNRECORDED_FIELD)))
    notes = {name: content for name, content in fields if content}
    if not (directory / LADDER_FILE).is_file():
        return Step(calls, notes)
    ladder = json.loads((directory / LADDER_FILE).read_text("utf-8"))
    phases = [{**phase, VALUES: _parse_fields(phase[VALUES])} for phase in ladder["rungs"]]
    return Step(calls, notes, phases)


def write_step(step: Step, directory: Path) -> None:
    """Write a step as the record files of a run of statistics."""
    directory.mkdir(parents=True, exist_ok=True)
    records = {key: _format_fields(call.fields) for key, call in step.calls.items()}
    parents = {key: call.parent for key, call in step.calls.items()}
    header = {"task": "statistics", "level": "mix", "framework": FRAMEWORK, PROBE_FIELD: step.notes}
    (directory / DUMP_FILE).write_text(json.dumps({**header, "data": records}), "utf-8")
    (directory / CONSTRUCT_FILE).write_text(json.dumps(parents), "utf-8")
    phases = [{"stack": [], **phase, VALUES: _format_fields(phase[VALUES])} for phase in step.phases]
    ladder = {"schema": SCHEMA, "framework": FRAMEWORK, "not_captured": {}, "rungs": phases}
    (directory / LADDER_FILE).write_text(json.dumps(ladder), "utf-8")


def map_tensors(tree: Tree, change: Callable[[TensorValue], Any]) -> Any:
    """Return a tree with each tensor replaced by what ``change`` returns for it."""
    if isinstance(tree, TensorValue):
        return change(tree)
    if isinstance(tree, list):
        return [map_tensors(item, change) for item in tree]
    if isinstance(tree, dict):
        return {name: map_tensors(item, change) for name, item in tree.items()}
    return tree


def is_leaf(tree: Mapping[str, Any]) -> bool:
    """Return True for the object of a leaf, False for one that holds leaves."""
    return isinstance(tree.get("type"), str)


def _format_fields(tree: Tree) -> Any:
    return map_tensors(tree, format_leaf)


def _parse_fields(tree: Any) -> Tree:
    if isinstance(tree, list):
        return [_parse_fields(item) for item in tree]
    if isinstance(tree, dict):
        if is_leaf(tree):
            return parse_leaf(tree) or tree
        return {name: _parse_fields(item) for name, item in tree.items()}
    scalar: Tree = tree
    return scalar


def _iterate_tensors(tree: Tree, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], TensorValue]]:
    if isinstance(tree, TensorValue):
        yield path, tree
        return
    items: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(tree, list):
        items = iter(enumerate(tree))
    elif isinstance(tree, dict):
        items = iter(tree.items())
    for name, item in items:
        yield from _iterate_tensors(item, (*path, name))
