"""The compare file (docs/configuration.md#compare-file): the paths of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, suggest_name
from probe_core.files.location import parse_location
from probe_core.files.user_files import load_object

COMPARE_FILE_KEYS = ("npu_path", "bench_path", "stack_path", "is_print_compare_log")


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The runs to compare, as a compare file or the command line names them.

    Attributes:
        target: The run under test.
        golden: The trusted run.
        stack: The file of call stacks; None if not given.
        print_log: True to print the summary after the verdict.
    """

    target: Path
    golden: Path
    stack: Path | None
    print_log: bool


def read_compare_file(path: Path) -> RunPaths:
    """Read the compare file ``path``; its relative paths start from the working directory."""
    document = load_object(path, "compare file", has_comments=True)
    return parse_run_paths(document, f"The compare file {path}", {key: key for key in COMPARE_FILE_KEYS})


def parse_run_paths(document: Mapping[str, Any], subject: str, keys: Mapping[str, str]) -> RunPaths:
    """Return the paths in a document with the keys of a compare file or other names of these.

    Args:
        document: The document.
        subject: The subject of error messages.
        keys: The key of a compare file for each key of the document.
    """
    fields: dict[str, Any] = {}
    for key, item in document.items():
        if key not in keys:
            close = suggest_name(str(key), keys)
            raise UserError(
                f'{subject} has an unknown key "{key}".',
                f"Did you mean {close}? Known keys:" if close else "Known keys:",
                list(keys),
            )
        fields[keys[key]] = item
    names = {canonical: key for key, canonical in keys.items()}
    for key in ("npu_path", "bench_path"):
        if not isinstance(fields.get(key), str) or not fields[key]:
            target, golden = names["npu_path"], names["bench_path"]
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
    target_path, golden_path = (parse_location(fields[key]) for key in ("npu_path", "bench_path"))
    return RunPaths(target_path, golden_path, Path(stack) if stack else None, print_log)
