"""Reports as JSON, for the journal from which a comparison of many ranks is resumed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from probe_core.files.location import parse_location
from probe_core.model import Reason
from probe_core.model.answers import Answer, Condition, Coverage, Finding, Note, NoteKind, Outcome
from probe_core.model.plan import convert_to_plain
from probe_core.model.report import FailureNote, Report

OMITTED_FIELDS = ("answer", "first_failure", "advice", "faults", "interrupted")
"""Fields that a finished report does not set, that only the advice needs, or that are serialized separately."""

SENTENCE_FIELDS = ("notes", "problems")
"""Fields of a report with sentences, some of which are instances of ``FailureNote``."""


def serialize_report(report: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    values = {
        name: convert_to_plain(getattr(report, name)) for name in _get_field_types(Report) if name not in OMITTED_FIELDS
    }
    for name in SENTENCE_FIELDS:
        values[name] = [_serialize_sentence(sentence) for sentence in getattr(report, name)]
    answer = report.answer
    return values | {"answer": None if answer is None else serialize_answer(answer)}


def parse_report(data: Any) -> Report:
    """Return the report that plain data describes.

    Raises:
        LookupError, TypeError, ValueError: The data does not describe a report.
    """
    values = {
        name: _parse_value(kind, data[name])
        for name, kind in _get_field_types(Report).items()
        if name not in (*OMITTED_FIELDS, *SENTENCE_FIELDS)
    }
    sentences: dict[str, Any] = {
        name: tuple(map(_parse_sentence, _parse_value(list, data[name]))) for name in SENTENCE_FIELDS
    }
    answer = data["answer"]
    return Report(**values, **sentences, answer=None if answer is None else parse_answer(answer))


def _serialize_sentence(sentence: str) -> str | list[str]:
    return [sentence, sentence.subject, sentence.fix] if isinstance(sentence, FailureNote) else sentence


def _parse_sentence(plain: Any) -> str:
    if isinstance(plain, list):
        return FailureNote(*(_parse_value(str, part) for part in plain))
    text: str = _parse_value(str, plain)
    return text


def serialize_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as plain data."""
    return asdict(answer) | {"outcome": answer.outcome.value}


def parse_answer(plain: Mapping[str, Any]) -> Answer:
    """Return the answer that plain data describes.

    Raises:
        LookupError, TypeError, ValueError: The data does not describe an answer.
    """
    return Answer(
        Outcome(plain["outcome"]), str(plain["text"]), tuple(map(_parse_finding, plain["causes"])),
        Coverage(**plain["coverage"]), tuple(plain["missing"]), tuple(plain["next"]),
        tuple(Note(NoteKind(kind), str(text), str(op)) for kind, text, op in plain["notes"]),
        dict(plain["baseline"]), tuple(plain["incomplete"]), tuple(map(_parse_finding, plain["withdrawn"])),
        tuple(Condition(*condition) for condition in plain["conditions"]), tuple(plain["unknown_conditions"]),
        dict(plain["reference"]),
    )  # fmt: skip


def _parse_finding(plain: Mapping[str, Any]) -> Finding:
    parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()}
    return Finding(**parts | {"reason": Reason(*plain["reason"])})


def _get_field_types(dataclass: type) -> dict[str, Any]:
    """Return the type of each field."""
    hints = get_type_hints(dataclass)
    return {field.name: hints[field.name] for field in fields(dataclass)}


def _parse_value(kind: Any, value: Any) -> Any:
    """Return the value of type ``kind`` that plain data describes; a float must be finite."""
    items = get_args(kind)
    if get_origin(kind) is tuple:
        return tuple(_parse_value(items[0], item) for item in _parse_value(list, value))
    if get_origin(kind) is dict:  # by the members of an enumeration, all of them
        return {key: _parse_value(items[1], _parse_value(dict, value)[key.value]) for key in items[0]}
    if is_dataclass(kind):
        types = _get_field_types(kind)  # type: ignore[arg-type]
        read = {name: _parse_value(part, _parse_value(dict, value)[name]) for name, part in types.items()}
        return kind(**read)  # type: ignore[operator]
    if issubclass(kind, (Enum, Path)):
        return parse_location(_parse_value(str, value)) if issubclass(kind, Path) else kind(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
