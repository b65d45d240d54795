"""One recorded step, read from and written to the files of a run directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Union

from probe_recording.file_names import FAMILIES_FIELD, PROBE_FIELD, UNRECORDED_FIELD
from xxhash import xxh3_64

from probe_core.store.files import CONSTRUCT_FILE, DEFAULT_RECORD_FILES
from pytest_probe.value_text import CHECKSUM_FIELD, TensorValue, format_leaf, parse_leaf

DUMP_FILE = DEFAULT_RECORD_FILES[0]
STEP_PHASES_FILE = "step_phases.json"
RECORDS_MARK = b'"data": {'
"""The text in front of the records in ``DUMP_FILE``. The header before it contains paths and notes."""
SCHEMA = 2
VALUES = "values"
"""The field of a phase that contains its tensors."""
FRAMEWORK = "pytorch"
Tree = Union[TensorValue, None, bool, int, float, str, list[Any], dict[str, Any]]
"""The content of a record: JSON whose tensors are ``TensorValue``."""
ValuePath = tuple[Union[str, int], ...]
"""The path of a tensor in a step: the key of the record or the phase, then names and places."""
Change = Callable[[ValuePath, TensorValue], TensorValue]


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
    """The records of one step of a test.

    Attributes:
        calls: The records by their keys, in the order of the run.
        notes: What the recorder noted of the whole step, such as the families of operators that it recorded.
        phases: The phases of a training step, with the fields of ``step_phases.json``.
    """

    calls: Mapping[str, Call]
    notes: Mapping[str, Any] = field(default_factory=dict)
    phases: Sequence[Mapping[str, Any]] = ()

    def replace_tensors(self, change: Change) -> Step:
        """Return the step with its tensors changed, in the order of the run."""
        calls = {
            key: replace(call, fields=map_tensors(call.fields, change, (key,))) for key, call in self.calls.items()
        }
        phases = [
            {**phase, VALUES: map_tensors(phase[VALUES], change, (phase["phase"], phase["number"]))}
            for phase in self.phases
        ]
        return replace(self, calls=calls, phases=phases)

    def tensors(self) -> dict[ValuePath, TensorValue]:
        """Return the tensors by their paths, in the order of the run."""
        values: dict[ValuePath, TensorValue] = {}
        self.replace_tensors(lambda path, value: values.setdefault(path, value))
        return values


@dataclass(frozen=True)
class RecordedStep:
    """A step in the directory that a recorder wrote it to; it is parsed when it is first needed."""

    directory: Path

    @cached_property
    def step(self) -> Step:
        """The content of the step."""
        return read_step(self.directory)

    @cached_property
    def digest(self) -> str:
        """A hash of everything in the step except its notes and call stacks."""
        records = (self.directory / DUMP_FILE).read_bytes()
        digest = xxh3_64(records[max(records.find(RECORDS_MARK), 0) :])
        for name in (CONSTRUCT_FILE, STEP_PHASES_FILE):
            path = self.directory / name
            content = path.read_bytes() if path.is_file() else b""
            if content and name == STEP_PHASES_FILE:
                phases = json.loads(content)["phases"]
                content = json.dumps([{**phase, "stack": None} for phase in phases]).encode()
            digest.update(content)
        return digest.hexdigest()


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
    if not (directory / STEP_PHASES_FILE).is_file():
        return Step(calls, notes)
    content = json.loads((directory / STEP_PHASES_FILE).read_text("utf-8"))
    phases = [{**phase, VALUES: _parse_fields(phase[VALUES])} for phase in content["phases"]]
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
    content = {"schema": SCHEMA, "framework": FRAMEWORK, "not_captured": {}, "phases": phases}
    (directory / STEP_PHASES_FILE).write_text(json.dumps(content), "utf-8")


def map_tensors(tree: Tree, change: Callable[[ValuePath, TensorValue], Any], path: ValuePath = ()) -> Any:
    """Return a tree with each tensor replaced by what ``change`` returns for its path and itself."""
    if isinstance(tree, TensorValue):
        return change(path, tree)
    if isinstance(tree, list):
        return [map_tensors(item, change, (*path, place)) for place, item in enumerate(tree)]
    if isinstance(tree, dict):
        return {name: map_tensors(item, change, (*path, name)) for name, item in tree.items()}
    return tree


def is_leaf(tree: Mapping[str, Any]) -> bool:
    """Return True for the object of a leaf, False for an object that contains leaves."""
    return isinstance(tree.get("type"), str)


def _format_fields(tree: Tree) -> Any:
    return map_tensors(tree, lambda _, value: format_leaf(value))


def _parse_fields(tree: Any) -> Tree:
    if isinstance(tree, list):
        return [_parse_fields(item) for item in tree]
    if isinstance(tree, dict):
        if is_leaf(tree):
            return parse_leaf(tree) or {name: item for name, item in tree.items() if name != CHECKSUM_FIELD}
        return {name: _parse_fields(item) for name, item in tree.items()}
    scalar: Tree = tree
    return scalar
