"""Contents of the result files of a pre-check: calls, their outputs, and the numbers of each output.

Files of both stages, in either language, written by probe or msprobe, can be read (docs/standards.md#csv).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager
from probe_precheck.comparison import RESULT_NAME as COMPARED_NAME
from probe_precheck.csvfile import CsvTable, read_table
from probe_precheck.model import ResultPaths
from probe_precheck.results import RESULT_NAME, get_call_name
from probe_precheck.specs import StandardSpec, StatusRuleSpec
from probe_precheck.tables import COMPARE_DETAILS, COMPARE_RESULT, DETAILS, NUMBERS, RESULT, CsvColumn
from probe_precheck.translation import select_statuses, translate

Texts = tuple[str, str]
"""A text in English and in Chinese."""
Number = float | str | None
"""The number in a cell; the text of a cell that is not a number; None for a blank cell."""

JUDGED_COLUMNS = {
    "small_value_error_share": ("small_value_ratio", "small_value_status"),
    "rmse": ("rmse_ratio", "rmse_status"),
    "max_relative_error": ("max_relative_ratio", "max_relative_status"),
    "mean_relative_error": ("mean_relative_ratio", "mean_relative_status"),
    "error_balance": ("error_balance_ratio", "error_balance_status"),
    "inf_nan_error_rate": ("", "inf_nan_status"),
    "relative_error_rate": ("", "relative_error_status"),
    "absolute_error_rate": ("", "absolute_error_status"),
    "error_rate": ("", "error_rate_status"),
    "ulp_share": ("ulp_share_ratio", "ulp_status"),
    "thousandth": ("", "thousandth_status"),
}
"""For each number that the second stage judges, the columns of its ratio and of the verdict on it."""
FACT_COLUMNS = frozenset({
    "name", "bench_dtype", "device_dtype", "shape", "status", "message", "standard", "standard_message",
    "algorithm",
})  # fmt: skip
"""Columns of the details that do not contain numbers."""


class Measure(NamedTuple):
    """A number of an output on the device and on the trusted device, their ratio, and the verdict on it."""

    device: Number = None
    trusted: Number = None
    ratio: Number = None
    verdict: str | None = None


EMPTY_MEASURE = Measure()


@dataclass(frozen=True, slots=True)
class WrittenOutput:
    """Row of the details.

    Attributes:
        name: The name of the output within its call, such as ``forward.output.0``.
        status: ``pass``, ``warning``, ``error`` or ``SKIP``.
        standard: The standard that judged the output in the second stage.
        verdict: The verdict of the API's standard in addition to the status, if the first stage has one.
        dtype: The dtype on the device.
        shape: The shape.
        measures: The measures, by key.
        message: The messages.
    """

    name: str
    status: str
    standard: Texts
    verdict: str
    dtype: str
    shape: str
    measures: Mapping[str, Measure]
    message: Texts

    @property
    def direction(self) -> str:
        """``forward`` or ``backward``; empty for names of another form."""
        return self.name.partition(".")[0] if ".output." in self.name else ""

    @property
    def statuses(self) -> tuple[str, ...]:
        """Statuses that decide how the row is counted."""
        return select_statuses((self.status, self.verdict), self.message[0])


@dataclass(slots=True)
class WrittenCall:
    """Row of the result, with its outputs."""

    name: str
    forward: str
    backward: str
    standard: str
    message: Texts
    outputs: list[WrittenOutput] = field(default_factory=list)

    @property
    def statuses(self) -> tuple[str, ...]:
        """Statuses that decide how the row is counted."""
        return select_statuses((self.forward, self.backward, self.standard), self.message[0])


@dataclass(frozen=True, slots=True)
class WrittenCheck:
    """Results of a pre-check.

    Attributes:
        stage: 1 for run_ut, 2 for api_precision_compare.
        calls: The calls, in the order of the file.
        titles: The titles of the measures, by key.
        has_details: False if the details are missing.
        paths: The files that were read.
    """

    stage: int
    calls: Sequence[WrittenCall]
    titles: Mapping[str, Texts]
    has_details: bool
    paths: Sequence[Path]


def read_check(results: ResultPaths, manager: Manager) -> WrittenCheck:
    """Read the result csv of a pre-check and the details next to it.

    Args:
        results: The files. In the second stage, the details of both devices contain their errors.
        manager: The plugins, whose standards and first stages may have additional columns.

    Raises:
        UserError: A file cannot be read, or is not a result of a pre-check.
    """
    path, stage = results.result, _find_stage(results.result)
    if not stage:
        raise UserError(f"{path} does not have the name of a pre-check result.", f"Give a {RESULT_NAME.format('…')}.")
    rules, standards = manager.specs("status_rules", StatusRuleSpec), manager.specs("standards", StandardSpec)
    standard_columns = [CsvColumn(*names) for spec in standards for names in spec.columns]
    rule_columns = [CsvColumn(*names) for spec in rules for names in (*spec.result, *spec.details)]
    calls = _read_calls(path, rule_columns)
    details = path.with_name(path.name.replace("_result_", "_details_"))
    if not details.is_file():
        return WrittenCheck(stage, list(calls.values()), {}, False, (path,))
    columns = (*(COMPARE_DETAILS if stage == 2 else DETAILS), *standard_columns, *rule_columns)
    devices = [
        _read_rows(device_path, (*DETAILS, *standard_columns, *rule_columns))
        for device_path in (results.npu, results.gpu)
    ]
    table = _read(details, columns, ("name", "status"))
    labels = {label: spec for spec in standards for label in (spec.label, spec.english_label)}
    for row in table.rows:
        name = row["name"].strip()
        npu, gpu = (rows.get(name, {}) for rows in devices)
        call = calls.get(name) or calls.get(get_call_name(name))
        if call is not None:
            call.outputs.append(_create_output(name.removeprefix(f"{call.name}."), row, npu, gpu, labels))
    paths = (path, details, *(device_path for device_path in (results.npu, results.gpu) if device_path is not None))
    return WrittenCheck(stage, list(calls.values()), _build_titles(table, standard_columns), True, paths)


def _read_calls(path: Path, rule_columns: Sequence[CsvColumn]) -> dict[str, WrittenCall]:
    table = _read(path, (*COMPARE_RESULT, *RESULT, *rule_columns), ("name", "forward", "backward"))
    calls: dict[str, WrittenCall] = {}
    for row in table.rows:
        name, forward, backward, standard = (_get_cell(row, key) for key in ("name", "forward", "backward", "standard"))
        calls[name] = WrittenCall(name, forward, backward, standard, _translate(_get_cell(row, "message")))
    return calls


def _find_stage(path: Path) -> int:
    for number, pattern in enumerate((RESULT_NAME, COMPARED_NAME), 1):
        start, end = pattern.split("{}")
        if path.name.startswith(start) and path.name.endswith(end):
            return number
    return 0


def _read_rows(path: Path | None, columns: Iterable[CsvColumn]) -> dict[str, dict[str, str]]:
    if path is None:
        return {}
    return {row["name"].strip(): row for row in _read(path, columns, ("name",)).rows}


def _read(path: Path, columns: Iterable[CsvColumn], required: Iterable[str]) -> CsvTable:
    """Read a file up to its last complete row; columns of different first stages may have the same key."""
    table = read_table(path, tuple(columns), (), may_be_cut=True)
    missing = sorted(set(required) - {column.key for column in table.columns})
    if missing:
        raise UserError(
            f"{path} is not a pre-check result: it has no column for {missing[0]}.",
            "Give a csv file that probe run_ut or api_precision_compare wrote.",
        )
    return table


def _create_output(
    name: str,
    row: Mapping[str, str],
    npu: Mapping[str, str],
    gpu: Mapping[str, str],
    labels: Mapping[str, StandardSpec],
) -> WrittenOutput:
    measures = {}
    for key, ratio, verdict in _list_keys(tuple(row), tuple(npu)):
        measure = Measure(
            parse_number(npu[key] if key in npu else row.get(key, "")),
            parse_number(gpu[key]) if key in gpu else None,
            parse_number(row[ratio]) if ratio in row else None,
            _get_cell(row, verdict) or None if verdict else None,
        )
        if measure != EMPTY_MEASURE:
            measures[key] = measure
    label = _get_cell(row, "algorithm")
    spec = labels.get(label)
    standard = (spec.english_label or spec.label, spec.label) if spec and label else (label, label)
    message = " ".join(filter(None, (_get_cell(row, "message"), _get_cell(row, "standard_message"))))
    return WrittenOutput(
        name, _get_cell(row, "status"), standard, _get_cell(row, "standard"),
        _get_cell(npu or row, "device_dtype"), _get_cell(npu or row, "shape"), measures, _translate(message),
    )  # fmt: skip


@cache
def _list_keys(row: tuple[str, ...], npu: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Return the keys of the measures of rows with these columns, each with the keys of its ratio and its verdict."""
    judged_columns = {key for pair in JUDGED_COLUMNS.values() for key in pair}
    keys = [column.key for column in NUMBERS if column.key in {*npu, *row, *JUDGED_COLUMNS}]
    keys += [key for key in row if key not in FACT_COLUMNS | judged_columns and key not in keys]
    return [(key, *JUDGED_COLUMNS.get(key, ("", ""))) for key in keys]


def _build_titles(table: CsvTable, standard_columns: Sequence[CsvColumn]) -> dict[str, Texts]:
    """Return the titles of all measures; those of unknown columns are their headers."""
    columns = (*table.columns, *standard_columns, *NUMBERS)
    return {column.key: (column.english, column.chinese) for column in columns if column.key not in FACT_COLUMNS}


def _get_cell(row: Mapping[str, str], key: str) -> str:
    return row.get(key, "").strip()


def parse_number(text: str) -> Number:
    """Return the number in a cell, the text of a cell that is not a number, or None for a blank cell."""
    try:
        return float(text)
    except ValueError:
        return text.strip() or None


@lru_cache(4096)
def _translate(message: str) -> Texts:
    return translate(message, "en"), translate(message, "zh")
