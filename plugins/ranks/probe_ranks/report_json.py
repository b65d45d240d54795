"""Reports as JSON, for the journal from which a comparison of many ranks is resumed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from probe_core.files.location import parse_location
from probe_core.model.plan import convert_to_plain
from probe_core.model.report import FailureNote, Report

OMITTED_FIELDS = ("first_failure", "advice", "faults", "interrupted")
"""Fields that a finished report does not set, or that only the advice needs."""

SENTENCE_FIELDS = ("notes", "problems")
"""Fields of a report with sentences, some of which are instances of ``FailureNote``."""


def serialize_report(report: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    values = {
        name: convert_to_plain(getattr(report, name)) for name in _get_field_types(Report) if name not in OMITTED_FIELDS
    }
    for name in SENTENCE_FIELDS:
        values[name] = [_serialize_sentence(sentence) for sentence in getattr(report, name)]
    return values


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
    return Report(**values, **sentences)


def _serialize_sentence(sentence: str) -> str | list[str]:
    return [sentence, sentence.subject, sentence.fix] if isinstance(sentence, FailureNote) else sentence


def _parse_sentence(plain: Any) -> str:
    if isinstance(plain, list):
        return FailureNote(*(_parse_value(str, part) for part in plain))
    text: str = _parse_value(str, plain)
    return text


def _get_field_types(dataclass: type) -> dict[str, Any]:
    """Return the type of each field."""
    hints = get_type_hints(dataclass)
    return {field.name: hints[field.name] for field in fields(dataclass)}


def _parse_value(kind: Any, value: Any) -> Any:
    """Return the value of type ``kind`` that plain data describes; a float must be finite."""
    origin, items = get_origin(kind), get_args(kind)
    if kind is Any or origin in (Union, UnionType):
        is_optional = type(None) in items and value is not None
        return _parse_value(items[0], value) if is_optional else value
    if origin is tuple:
        return tuple(_parse_value(items[0], item) for item in _parse_value(list, value))
    if origin is Mapping:
        return {key: _parse_value(items[1], item) for key, item in _parse_value(dict, value).items()}
    if origin is dict:  # by the members of an enumeration, all of them
        return {key: _parse_value(items[1], _parse_value(dict, value)[key.value]) for key in items[0]}
    if is_dataclass(kind):
        types = _get_field_types(kind)  # type: ignore[arg-type]
        read = {name: _parse_value(part, _parse_value(dict, value)[name]) for name, part in types.items()}
        return kind(**read)  # type: ignore[operator]
    if issubclass(kind, tuple):  # a NamedTuple, whose last fields may be missing
        return kind(*map(_parse_value, get_type_hints(kind).values(), _parse_value(list, value)))
    if issubclass(kind, (Enum, Path)):
        return parse_location(_parse_value(str, value)) if issubclass(kind, Path) else kind(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
