"""Reports of overflows (``Opdebug`` files): their fields, and sentences (docs/legacy.md#acl-dumps)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probe_legacy.acl.wire import DamagedDump

Report = Mapping[str, Mapping[str, Any]]
"""The fields of each unit, by the name of the unit."""

MAGIC = 0x5A5A5A5A
"""The first number of a report of the new style."""
OLD_REPORT_BYTES = 2048
_OLD_INFO = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_OLD_UNITS = {"DHA Atomic Add": (0, 512), "L2 Atomic Add": (128, 768), "AI Core": (256, 1024)}
"""The units of the old style, with the offsets of their information and of their status."""
_NEW_HEAD = ("magic", "version", "valid", "acc_type", "rsv", "data_len")
_TASK = ("model_id", "stream_id", "task_id", "task_type")
_CORE = (*_TASK, "context_id", "thread_id", "pc_start", "para_base", "core_id", "block_id")
_NEW_UNITS: Mapping[int, tuple[str, tuple[str, ...]]] = {
    0: ("AI Core", _CORE),
    1: ("Vector Core", _CORE),
    2: ("AI CPU", (*_TASK, "context_id", "cpu_id", "thread_id")),
    3: ("SDMA", (*_TASK, "context_id", "thread_id", "src_addr", "dst_addr", "channel_id")),
}
"""The units of the new style by ``acc_type``, with their fields before the status."""
_ADDRESSES = ("pc_start", "para_base", "src_addr", "dst_addr", "kernel_code")
_WORDS = 4
"""Number of words of the status of a core in version 1 of the new style."""


def parse_report(data: memoryview) -> Report:
    """Return the fields of a report of either style.

    Raises:
        DamagedDump: The report has another length or kind than is known.
    """
    if len(data) >= 4 and _read_integers(data, 0, 1, 4)[0] == MAGIC:
        return _parse_new_report(data)
    if len(data) != OLD_REPORT_BYTES:
        raise DamagedDump(
            f"holds a report of {len(data)} bytes, which is of neither style ({OLD_REPORT_BYTES} bytes, or marked)"
        )
    report: dict[str, dict[str, Any]] = {}
    for unit, (info, status) in _OLD_UNITS.items():
        report[unit] = _name_values(_OLD_INFO, _read_integers(data, info, len(_OLD_INFO)))
        if unit == "AI Core":
            report[unit] |= _name_values(("kernel_code", "block_idx", "status"), _read_integers(data, status, 3))
        else:
            report[unit] |= _name_values(("status",), _read_integers(data, status, 1))
    return report


def _parse_new_report(data: memoryview) -> Report:
    size = 4 * len(_NEW_HEAD)
    if len(data) < size:
        raise DamagedDump(f"holds a report that ends after {len(data)} bytes")
    head = dict(zip(_NEW_HEAD, _read_integers(data, 0, len(_NEW_HEAD), 4)))
    unit, names = _NEW_UNITS.get(head["acc_type"], ("", ()))
    if not unit:
        raise DamagedDump(f"holds a report of the unknown unit {head['acc_type']}")
    word_count = _WORDS if head["version"] == 1 and names == _CORE else 1
    statuses = ("status",) if word_count == 1 else tuple(f"status_{number}" for number in range(word_count))
    all_names = (*names, *statuses)
    if len(data) - size < 8 * len(all_names):
        raise DamagedDump(f"holds a report of {len(data)} bytes, too short for the fields of {unit}")
    return {
        "head": {**head, "magic": hex(head["magic"])},
        unit: _name_values(all_names, _read_integers(data, size, len(all_names))),
    }


def _read_integers(data: memoryview, place: int, count: int, size: int = 8) -> list[int]:
    return [int.from_bytes(data[at : at + size], "little") for at in range(place, place + count * size, size)]


def _name_values(names: tuple[str, ...], values: list[int]) -> dict[str, Any]:
    return {name: hex(value) if name in _ADDRESSES else value for name, value in zip(names, values)}


def describe_overflows(report: Report, dumps: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a sentence on each unit that reports an overflow, or one that none does.

    Args:
        report: The fields of the report.
        dumps: Names of dumps in its directory, by their task.
    """
    if "head" in report and not report["head"]["valid"]:
        yield "The report is marked as not valid, so it says nothing about an overflow."
        return
    is_quiet = True
    for unit, fields in report.items():
        status = [value for name, value in fields.items() if name.startswith("status")]
        if unit == "head" or not any(status):
            continue
        is_quiet = False
        task = str(fields["task_id"])
        yield (
            f"{unit} reports an overflow in task {task} of stream {fields['stream_id']} "
            f"(model {fields['model_id']}{_place(fields)}): status {', '.join(map(hex, status))}."
            f"{_describe_operator(task, dumps.get(task, []))}"
        )
    if is_quiet:
        yield "No unit reports an overflow: every status is 0."


def _place(fields: Mapping[str, Any]) -> str:
    labels = (("core", "core_id"), ("block", "block_id"), ("block", "block_idx"), ("channel", "channel_id"),
            ("CPU", "cpu_id"), ("kernel starts at", "pc_start"))  # fmt: skip
    return "".join(f", {label} {fields[name]}" for label, name in labels if name in fields)


def _describe_operator(task: str, names: list[str]) -> str:
    if not names:
        return f" No dump of task {task} is in this directory."
    if len(names) == 1:
        return f" Task {task} is {names[0]}."
    return f" {len(names)} dumps are of task {task}; the first is {names[0]}."
