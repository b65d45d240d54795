"""The text of a step in a golden file: one line for each call, each tensor with its statistics once.

A line names the module around the call only if it is another one than that of the line before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_probe.step import VALUES, Call, Step, Tree, is_leaf
from pytest_probe.value_text import SeenValues, TensorValue, ValueTextError, format_value, parse_value

PARENT = "in"
"""The field of a line that names the module around the call."""
CONTENT = "record"
"""The field that contains a record, unless the record is a JSON object."""
LEAF = "="
"""The beginning of the only name in the object of a leaf, in front of its type."""
NAMES = {"input_args": "args", "input_kwargs": "kwargs"}
FULL_NAMES = {short: name for name, short in NAMES.items()}
PHASE_FIELDS = ("phase", "number", "facts")
SCALARS = (bool, int, float)


def format_step(step: Step) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the calls of a step by key, and its phases, in the form of the lines of a golden file."""
    seen_values = SeenValues()
    return _format_calls(step.calls, seen_values), [_format_phase(phase, seen_values) for phase in step.phases]


def parse_step(calls: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> Step:
    """Return the step that the lines of a golden file describe.

    Raises:
        ValueTextError: A line is not valid.
    """
    seen_values = SeenValues()
    return Step(_parse_calls(calls, seen_values), phases=[_parse_phase(phase, seen_values) for phase in phases])


def _format_phase(phase: Mapping[str, Any], seen_values: SeenValues) -> dict[str, Any]:
    fields = {name: phase[name] for name in PHASE_FIELDS if phase.get(name) not in ({}, None)}
    return {**fields, VALUES: {name: _format_tree(item, seen_values) for name, item in phase[VALUES].items()}}


def _parse_phase(line: Mapping[str, Any], seen_values: SeenValues) -> dict[str, Any]:
    values = line.get(VALUES)
    if not isinstance(line, dict) or not isinstance(values, dict) or not {"phase", "number"} <= line.keys():
        raise ValueTextError("a phase lacks its name, number or values")
    return {"facts": {}, **line, VALUES: {name: _parse_tree(item, seen_values) for name, item in values.items()}}


def _format_calls(calls: Mapping[str, Call], seen_values: SeenValues) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    parent: str | None = None
    for key, call in calls.items():
        fields: dict[str, Any] = {}
        if call.parent != parent:
            parent = fields[PARENT] = call.parent
        if isinstance(call.fields, dict) and not is_leaf(call.fields):
            content = {NAMES.get(name, name): _format_tree(item, seen_values) for name, item in call.fields.items()}
            if "args" in content and not content.get("kwargs"):
                content.pop("kwargs", None)
            fields |= content
        else:
            fields[CONTENT] = _format_tree(call.fields, seen_values)
        lines[key] = fields
    return lines


def _parse_calls(lines: Mapping[str, Any], seen_values: SeenValues) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    parent: str | None = None
    for key, line in lines.items():
        if not isinstance(line, dict):
            raise ValueTextError(f"{key} is not an object")
        fields = dict(line)
        parent = fields.pop(PARENT, parent)
        if parent is not None and not isinstance(parent, str):
            raise ValueTextError(f"{key} names no module around it")
        content = fields[CONTENT] if CONTENT in fields else _restore_names(fields)
        calls[key] = Call(_parse_tree(content, seen_values), parent)
    return calls


def _format_tree(tree: Tree, seen_values: SeenValues) -> Any:
    """Return a part of a record with texts for tensors, and with bare scalars where JSON states their type."""
    if isinstance(tree, TensorValue):
        return format_value(seen_values.shorten(tree))
    if isinstance(tree, list):
        return [_format_tree(item, seen_values) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if not is_leaf(tree):
        return {name: _format_tree(item, seen_values) for name, item in tree.items()}
    if tree.keys() != {"type", "value"}:
        return {LEAF: tree}
    value = tree["value"]
    return value if _is_bare(tree["type"], value) else {f"{LEAF}{tree['type']}": value}


def _is_bare(kind: Any, value: Any) -> bool:
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return type(value) in SCALARS and is_finite and type(value).__name__ == kind


def _restore_names(fields: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = {}
    for name, item in fields.items():
        restored[FULL_NAMES.get(name, name)] = item
        if name == "args" and "kwargs" not in fields:
            restored["input_kwargs"] = {}
    return restored


def _parse_tree(tree: Any, seen_values: SeenValues) -> Tree:
    if isinstance(tree, str):
        return seen_values.expand(parse_value(tree))
    if isinstance(tree, list):
        return [_parse_tree(item, seen_values) for item in tree]
    if isinstance(tree, dict):
        name = next(iter(tree), "")
        if not name.startswith(LEAF):
            return {name: _parse_tree(item, seen_values) for name, item in tree.items()}
        return {"type": name[len(LEAF) :], "value": tree[name]} if name != LEAF else tree[name]
    if type(tree) in SCALARS:
        return {"type": type(tree).__name__, "value": tree}
    return None
