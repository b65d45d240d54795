"""The compare file (docs/configuration.md#compare-file), and the types of the options' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from probe_core.errors import UserError, suggest_name
from probe_core.files.location import parse_location
from probe_core.files.user_files import load_object, parse_numbers

COMPARE_FILE_KEYS = ("npu_path", "bench_path", "stack_path", "is_print_compare_log")


@dataclass(frozen=True, slots=True)
class CompareFile:
    """The fields of a compare file."""

    target: Path
    golden: Path
    stack: Path | None
    print_log: bool


def read_compare_file(path: Path) -> CompareFile:
    """Read the compare file ``path``; its relative paths start from the working directory."""
    return parse_input(
        load_object(path, "compare file", has_comments=True),
        f"The compare file {path}",
        {k: k for k in COMPARE_FILE_KEYS},
    )


def parse_input(value: Mapping[str, Any], subject: str, keys: Mapping[str, str]) -> CompareFile:
    """Return the fields that ``value`` holds under ``keys``; ``subject`` opens the messages."""
    fields: dict[str, Any] = {}
    for key, item in value.items():
        if key not in keys:
            close = suggest_name(str(key), keys)
            raise UserError(
                f'{subject} has an unknown key "{key}".',
                f"Did you mean {close}? Known keys:" if close else "Known keys:",
                list(keys),
            )
        fields[keys[key]] = item
    names = {canonical: key for key, canonical in keys.items()}
    target, golden = names["npu_path"], names["bench_path"]
    for key in ("npu_path", "bench_path"):
        if not isinstance(fields.get(key), str) or not fields[key]:
            raise UserError(
                f'{subject} needs "{names[key]}", the path of a run.',
                f'For example {{"{target}": "npu/dump.json", "{golden}": "bench/dump.json"}}.',
            )
    stack = fields.get("stack_path")
    if stack is not None and not isinstance(stack, str):
        raise UserError(f'{subject}: "{names["stack_path"]}" must be a path.', "Give a text, or leave it out.")
    print_log = fields.get("is_print_compare_log", True)
    if not isinstance(print_log, bool):
        raise UserError(f'{subject}: "is_print_compare_log" must be true or false.', "Write true or false.")
    return CompareFile(
        parse_location(fields["npu_path"]),
        parse_location(fields["bench_path"]),
        Path(stack) if stack else None,
        print_log,
    )


class Location(click.Path):
    """A path, or the URL of a place that fsspec knows; completed as a path."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path or URL."""
        return parse_location(value)


class NumberRanges(click.ParamType):  # type: ignore[type-arg]
    """Integers and ranges of them: ``0,2-4``."""

    name = "number[,number…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: Any) -> tuple[int, ...]:
        """Return the numbers in ascending order, each once."""
        return value if isinstance(value, tuple) else parse_numbers(value, param.opts[-1] if param else "it")
