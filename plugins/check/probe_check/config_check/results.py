"""Comparison of two paths, and the files of its result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from probe_recording.step_facts.environment import VARIABLES
from probe_recording.values.leaves import encode_number
from probe_reporters.api import neutralise

from probe_check.config_check.comparison import ConfigComparison, compare_packs
from probe_check.config_check.items import Cell, ConfigDifference, Gap, ItemResult, PackItem
from probe_check.config_check.pack import Pack, Scalar, open_pack
from probe_check.config_check.pack_file import PACK_SUFFIX
from probe_check.config_check.rules import HIDDEN_TEXT, ConfigRules, load_rules
from probe_core.errors import UserError
from probe_core.files.atomic import (
    create_path_error,
    make_directory,
    refuse_link,
    remove_leftovers,
    write_atomically,
    write_text,
)


def compare_and_write(
    bench_path: Path, cmp_path: Path, output: Path, framework: str
) -> tuple[ConfigComparison, list[Path]]:
    """Compare two packs, write the results, and return the comparison and the paths of its files.

    Args:
        bench_path: The reference: a zip file or a directory.
        cmp_path: The pack to check.
        output: The directory of the results, which is created.
        framework: The framework, whose package is compared.

    Raises:
        UserError: A path is not a pack, both have nothing in common, or the results cannot be written.
    """
    with closing(open_required_pack(bench_path)) as bench, closing(open_required_pack(cmp_path)) as cmp:
        comparison = compare_packs(bench, cmp, framework)
        if not any(result.is_compared for result in comparison.results):
            raise UserError(
                f"{bench_path} and {cmp_path} have nothing in common that can be compared.",
                "Collect both in the same way.",
            )
        make_directory(output)
        remove_leftovers(output)
        for pack, name in ((bench, "bench"), (cmp, "cmp")):
            if pack.path.is_file():
                unpack(pack, output / name, load_rules())
    written = [output / WORKBOOK_FILE, output / RESULT_FILE]
    write_workbook(written[0], comparison)
    write_result(written[1], comparison)
    return comparison, written


def is_pack(path: Path) -> bool:
    """Return True if a path is a pack, or a recorded run with conditions."""
    pack = _find_pack(path)
    if pack is not None:
        pack.close()
    return pack is not None


def _find_pack(path: Path) -> Pack | None:
    """Return the pack at a path; None if it is something else."""
    pack = open_pack(path) if path.is_dir() or path.suffix == PACK_SUFFIX else None
    if pack is not None and not pack.list_items():
        pack.close()
        return None
    return pack


def open_required_pack(path: Path) -> Pack:
    """Return a pack.

    Raises:
        UserError: The path is no pack; directories and other files may be checkpoints.
    """
    if not path.exists():
        raise UserError(f"{path} not found.", "Check the path.")
    pack = _find_pack(path)
    if pack is None:
        raise UserError(
            f"{path} is neither a pack of config-check nor a recorded run with conditions.",
            "To compare two checkpoints, run: probe checkpoint A B",
        )
    return pack


# -- the file ``result.json`` (docs/config-check.md#files) ------------------------------------------


RESULT_FILE = "result.json"
LAYOUT_VERSION = 1
"""Version of the layout."""


def write_result(path: Path, comparison: ConfigComparison) -> None:
    """Write the levels, the differences and the gaps."""
    write_text(path, json.dumps(create_content(comparison), indent=1) + "\n")


def create_content(comparison: ConfigComparison) -> dict[str, Any]:
    """Return the content of the file; numbers that are not finite are texts."""
    return {
        "version": LAYOUT_VERSION,
        "bench": str(comparison.bench),
        "cmp": str(comparison.cmp),
        "level": comparison.level.value,
        "items": [_encode_item(item) for item in comparison.results],
        "differences": [_encode_difference(item) for item in comparison.differences],
        "gaps": [_encode_gap(item) for item in comparison.gaps],
    }


def _encode_item(result: ItemResult) -> dict[str, Any]:
    return {
        "name": result.item.value,
        "level": result.level.value,
        "rows": len(result.rows),
        "differences": len(result.differences),
    }


def _encode_difference(difference: ConfigDifference) -> dict[str, Any]:
    return {
        "kind": difference.condition.kind.value,
        "name": difference.condition.name,
        "statistic": difference.statistic or None,
        "bench": encode_number(difference.condition.golden),
        "cmp": encode_number(difference.condition.target),
        "level": difference.level.value,
        "item": difference.item.value,
        "step": difference.step,
        "rank": difference.rank,
    }


def _encode_gap(gap: Gap) -> dict[str, Any]:
    return {"kind": gap.kind.value, "item": gap.item.value, "side": gap.side, "names": list(gap.names)}


def unpack(pack: Pack, directory: Path, rules: ConfigRules) -> None:
    """Write the members of a pack into a directory, in place of an earlier content.

    Of the environment variables, those that are compared or recorded are written. Secrets are hidden.

    Raises:
        UserError: The directory cannot be written.
    """
    refuse_link(directory)
    if directory.exists():
        _remove(directory)
    has_variables = PackItem.ENVIRONMENT in pack.list_items()
    variables = select_shown_variables(pack.read_variables(), rules) if has_variables else {}
    texts = {"env": json.dumps(variables, indent=4) + "\n"}
    texts |= {
        f"hyperparameters/{file}": json.dumps(_hide_secrets(pack.read_hyperparameters(file), rules), indent=4) + "\n"
        for file in pack.list_hyperparameter_files()
    }
    for name in pack.list_members():
        path = directory / name
        make_directory(path.parent)
        text = texts[name] if name in texts else pack.read_content(name).decode("utf-8", "replace")
        write_text(path, text)


def _hide_secrets(parameters: dict[str, Scalar], rules: ConfigRules) -> dict[str, Scalar]:
    return {name: HIDDEN_TEXT if rules.is_secret(name) else value for name, value in parameters.items()}


def select_shown_variables(variables: dict[str, str], rules: ConfigRules) -> dict[str, str]:
    """Return the variables that may be written, and the names of those that show that a machine has NPUs."""
    names = {name for rule in rules.variables for name in (rule.npu, rule.gpu) if name} | {*VARIABLES}
    return {
        name: value if name in names else ""
        for name, value in variables.items()
        if name in names or rules.npu_mark in name
    }


def _remove(directory: Path) -> None:
    """Remove an earlier unpacked pack, and nothing else.

    Raises:
        UserError: The directory holds something else, or cannot be removed.
    """
    try:
        files = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}
        with closing(open_pack(directory)) as earlier:
            others = files.difference(earlier.list_members())
        if others:
            raise UserError(
                f"{directory} holds files that are not of a pack and would be lost, such as {min(others)}.",
                "Remove it, or give another directory with -o.",
            )
        shutil.rmtree(directory)
    except OSError as error:
        raise create_path_error(directory, error) from None


# -- the workbook ``result.xlsx`` (docs/config-check.md#files) --------------------------------------


WORKBOOK_FILE = "result.xlsx"
SUMMARY_SHEET = "summary"
SUMMARY_COLUMNS = ("filename", "pass_check")
MAX_SHEET_ROWS = 1_048_499
"""Largest number of rows of a sheet; longer tables continue in further sheets."""
MAX_CELL_LENGTH = 32_000
"""Largest number of characters of a cell; the limit of spreadsheets is slightly larger."""


def write_workbook(path: Path, comparison: ConfigComparison) -> None:
    """Write the summary and the table of each item."""
    import xlsxwriter

    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with write_atomically(path, "The result") as temporary, xlsxwriter.Workbook(temporary, options) as book:
        rows = [(result.item.value, result.level.value) for result in comparison.results]
        _add_sheet(book, SUMMARY_SHEET, SUMMARY_COLUMNS, rows)
        for result in comparison.results:
            parts = -(-len(result.rows) // MAX_SHEET_ROWS) or 1
            length = -(-len(result.rows) // parts)
            for part in range(parts):
                name = result.item.value if parts == 1 else f"{result.item.value}_part_{part}"
                _add_sheet(book, name, result.columns, result.rows[part * length : (part + 1) * length])


def _add_sheet(book: Any, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    sheet = book.add_worksheet(name)
    sheet.freeze_panes(1, 0)
    bold = book.add_format({"bold": True})
    for number, title in enumerate(columns):
        sheet.write_string(0, number, title, bold)
    for row_number, row in enumerate(rows, 1):
        for number, value in enumerate(row):
            _write_cell(sheet, row_number, number, value)


def _write_cell(sheet: Any, row: int, column: int, value: Cell) -> None:
    """Write a cell.

    A number that a sheet cannot hold exactly is written as a text; None and an empty text leave the cell empty.
    """
    if value is None or value == "":
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, str):
        sheet.write_string(row, column, neutralise(value[:MAX_CELL_LENGTH]))
    elif abs(value) <= 2**53:  # False for nan
        sheet.write_number(row, column, value)
    else:
        sheet.write_string(row, column, str(value))
