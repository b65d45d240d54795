"""The two runs that a command line names: by TARGET and GOLDEN, or in one of the ways of msprobe.

msprobe 8.3 names them in a compare file (docs/configuration.md#compare-file), and msprobe 26 by two options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import click

from probe_core.errors import UserError, suggest_name
from probe_core.files.location import parse_location
from probe_core.files.user_files import load_object
from probe_core.terminal.option_types import Location
from probe_core.terminal.spelling import option

COMPARE_FILE_KEYS = ("npu_path", "bench_path", "stack_path", "is_print_compare_log")


class Spelling(Enum):
    """Ways in which a command line names two runs. Each but the first is a drop-in for a release of msprobe."""

    ARGUMENTS = "TARGET GOLDEN"
    COMPARE_FILE = "-i"
    PATH_OPTIONS = "-tp -gp"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The runs to compare, as a compare file or the command line names them.

    Attributes:
        target: The run under test.
        golden: The trusted run.
        stack: The file of call stacks; None if not given.
        print_log: True to print the summary after the verdict.
        spelling: The way in which the runs are named.
    """

    target: Path
    golden: Path
    stack: Path | None = None
    print_log: bool = True
    spelling: Spelling = Spelling.ARGUMENTS


class DropInOptions(NamedTuple):
    """The values of the options that scripts of msprobe use to name runs and to choose formats."""

    compare_file: Path | None
    target_path: Path | None
    golden_path: Path | None
    is_xlsx: bool
    print_log: bool


def add_drop_in_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of ``DropInOptions`` to the function of a command; a decorator."""
    file_help = "Compare file: JSON with npu_path and bench_path, instead of TARGET and GOLDEN."
    log_help = "With -tp and -gp: print the causes and the summary, too."
    options = [
        option("-i", "--input", "compare_file", also=["--input_path"], type=click.Path(path_type=Path), help=file_help),
        option("-tp", "--target-path", type=Location(), hidden=True, help="TARGET (drop-in spelling)."),
        option("-gp", "--golden-path", type=Location(), hidden=True, help="GOLDEN (drop-in spelling)."),
        option("--xlsx", "is_xlsx", is_flag=True, hidden=True, help="Write xlsx (drop-in spelling)."),
        option("-tensor_log", "--is-print-compare-log", "print_log", is_flag=True, hidden=True, help=log_help),
    ]
    return reduce(lambda decorated, decorate: decorate(decorated), reversed(options), function)


def choose_runs(target: Path | None, golden: Path | None, drop_in: DropInOptions) -> RunPaths:
    """Return the runs that the command line names.

    Raises:
        UserError: It names no run, only one, or names them in two ways.
    """
    if drop_in.target_path is not None or drop_in.golden_path is not None:
        return _read_path_options(target, drop_in)
    if drop_in.print_log:
        raise UserError("-tensor_log needs -tp and -gp.", "Leave it out: the summary is printed without it.")
    if drop_in.compare_file is not None:
        if target is not None:
            raise UserError("-i (--input) and TARGET exclude each other.", "Give a compare file, or two paths.")
        return read_compare_file(drop_in.compare_file)
    if target is None or golden is None:
        raise UserError(
            "Two runs are needed.", "Give them as TARGET GOLDEN, or a compare file with -i. See 'probe compare --help'."
        )
    return RunPaths(target, golden)


def _read_path_options(target: Path | None, drop_in: DropInOptions) -> RunPaths:
    """Return the runs that ``-tp`` and ``-gp`` name."""
    if target is not None or drop_in.compare_file is not None:
        raise UserError("-tp and -gp exclude TARGET, GOLDEN and -i.", "Use one spelling: probe compare TARGET GOLDEN")
    if drop_in.target_path is None or drop_in.golden_path is None:
        raise UserError("-tp and -gp must be used together.", "Use: probe compare -tp TARGET -gp GOLDEN")
    return RunPaths(drop_in.target_path, drop_in.golden_path, None, drop_in.print_log, Spelling.PATH_OPTIONS)


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
    fields = _rename_keys(document, subject, keys)
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
    return RunPaths(target_path, golden_path, Path(stack) if stack else None, print_log, Spelling.COMPARE_FILE)


def _rename_keys(document: Mapping[str, Any], subject: str, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a document by the keys of a compare file."""
    for key in document:
        if key not in keys:
            close = suggest_name(str(key), keys)
            fix = f"Did you mean {close}? Known keys:" if close else "Known keys:"
            raise UserError(f'{subject} has an unknown key "{key}".', fix, list(keys))
    return {keys[key]: item for key, item in document.items()}
