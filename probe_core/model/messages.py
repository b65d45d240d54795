"""What the reason codes say in the tables: the seed's messages and the texts of empty cells.

``rank`` is the place of a message within its cell (decision D15); a code without message is
evidence for the summary and never stands in a table. ``cell`` is what stands in a tensor table
where a number was not to be had; tables of statistics know only ``N/A`` and ``Nan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from probe_core.model import Mode, Reason, Row

NOT_AVAILABLE = "N/A"
UNSUPPORTED = "unsupported"
NAN = "Nan"


@dataclass(frozen=True, slots=True)
class Text:
    """The message of a reason, its place among others, and the cell it leaves."""

    message: str = ""
    rank: int = 0
    cell: str = UNSUPPORTED


REASONS: dict[str, Text] = {
    # who is there
    "no_golden": Text("No bench data matched.", 10),
    "no_target": Text("No NPU data matched.", 10),
    "requires_grad": Text("Requires_grad inconsistent.", 10),
    # why a pair cannot be measured
    "golden_unmatched": Text("Bench api/module unmatched.", 20),
    "no_target_file": Text("NPU does not have data file.", 20),
    "no_golden_file": Text("Bench does not have data file.", 20),
    "unreadable": Text("Dump file: {} not found or read failed.", 20),
    "empty": Text("This is empty data, can not compare.", 20),
    "shape": Text("Shape of NPU and bench Tensor do not match. Skipped.", 20, "shape unmatched"),
    "positions": Text("The Position of inf or nan in NPU and bench Tensor do not match.", 20, NOT_AVAILABLE),
    "unreadable_data": Text("Data is unreadable.", 20),
    "scalar_differs": Text("Scalar of NPU and bench do not match.", 20),
    "not_a_tensor": Text(),
    # what the measurements say
    "dtype": Text("Dtype of NPU and bench Tensor do not match.", 40),
    "metric_failed": Text("Metric failed: {}.", 50, NOT_AVAILABLE),
    "region": Text("Calls of NPU and bench do not line up here.", 60),
    "fuzzy": Text("Fuzzy matching data, the comparison accuracy may be affected.", 60),
    # cells without a message
    "nan": Text(cell=NAN),
    "no_number": Text(cell=NOT_AVAILABLE),
    # evidence of verdicts, for the summary
    "evidence": Text(),
}


def register(texts: Mapping[str, Text]) -> None:
    """Take in what the codes of a plugin say; those of the core stay as they are.

    Raises:
        TypeError: It is no mapping from codes to texts.
    """
    for code, text in texts.items():
        if not isinstance(code, str) or not isinstance(text, Text):
            raise TypeError(f"probe_reasons must return texts by their codes, not {code!r:.40}: {text!r:.40}")
        REASONS.setdefault(code, text)


def reasons_of(row: Row) -> list[Reason]:
    """All reasons of a row but those of its mark."""
    measured = [item.reason for item in row.measurements.values() if item.reason is not None]
    return [*row.notes, *measured, *row.verdict.reasons]


def message(reason: Reason) -> str:
    """The message of one reason; an unknown code, of a plugin, says its detail."""
    text = REASONS.get(reason.code)
    if text is None:
        return reason.detail
    return text.message.format(reason.detail) if "{}" in text.message else text.message


def join(reasons: Iterable[Reason]) -> str:
    """The messages of one cell in their order, each once, joined by one blank (decision D15)."""
    ordered = sorted(reasons, key=lambda reason: REASONS.get(reason.code, Text(rank=55)).rank)
    return " ".join(dict.fromkeys(text for text in map(message, ordered) if text))


def absent(reason: Reason, mode: Mode) -> str:
    """What stands in the cell of a measurement that is not there."""
    cell = REASONS.get(reason.code, Text()).cell
    return cell if mode is Mode.TENSOR or cell == NAN else NOT_AVAILABLE
