"""The text of each reason code in the tables.

Messages and their order within a cell are those of docs/tables.md#messages. A code without a message is
evidence for the summary and is not shown in tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from probe_core.model import Mode, Reason
from probe_core.plugins.manager import Manager
from probe_reporters.messages import NAN, NOT_AVAILABLE, Text

REASON_TEXTS: Mapping[str, Text] = {
    # a partner is missing or differs
    "no_golden": Text("No bench data matched.", 10),
    "no_target": Text("No NPU data matched.", 10),
    "requires_grad": Text("Requires_grad inconsistent.", 10),
    # the pair cannot be measured
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
    # only some rows are compared
    "row_shared": Text("All rows share this value. Skipped.", 20),
    "row_reduced": Text("Value over all rows of the batch. Skipped.", 20),
    "row_size": Text("Size that depends on the number of rows. Skipped.", 20),
    "row_axis": Text("The axis of the rows is not known. Skipped.", 20),
    # the pair was measured
    "dtype": Text("Dtype of NPU and bench Tensor do not match.", 40),
    "metric_failed": Text("Metric {}.", 50, NOT_AVAILABLE),
    "region": Text("Calls of NPU and bench do not line up here.", 60),
    "fuzzy": Text("Fuzzy matching data, the comparison accuracy may be affected.", 60),
    # cells without a message
    "nan": Text(cell=NAN),
    "no_number": Text(cell=NOT_AVAILABLE),
    # evidence of verdicts, for the summary
    "evidence": Text(),
    "drift": Text(),
}
_UNKNOWN_TEXT = Text(rank=55)


def _check_texts(texts: Any) -> Mapping[str, Text]:
    """Return the texts that a plugin gives its codes; raise TypeError if they are not valid."""
    for code, text in texts.items():
        if not isinstance(code, str) or not isinstance(text, Text):
            raise TypeError(f"probe_reasons must return texts by their codes, not {code!r:.40}: {text!r:.40}")
    return texts  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ReasonTexts:
    """The texts of all reason codes, including the codes of plugins."""

    by_code: Mapping[str, Text] = field(default_factory=lambda: REASON_TEXTS)

    @classmethod
    def load(cls, manager: Manager) -> ReasonTexts:
        """Return the texts of probe with those of plugins for other codes."""
        return cls({**manager.merge_mappings("probe_reasons", _check_texts), **REASON_TEXTS})

    def format_message(self, reason: Reason) -> str:
        """Return the message of a reason; an unknown code shows its detail."""
        text = self.by_code.get(reason.code)
        if text is None:
            return reason.detail
        return text.message.format(reason.detail) if "{}" in text.message else text.message

    def join_messages(self, reasons: Iterable[Reason]) -> str:
        """Return the messages of one cell, each once, in the order of docs/tables.md#messages."""
        ranks = {message: self._find(reason).rank for reason in reasons if (message := self.format_message(reason))}
        return " ".join(sorted(ranks, key=ranks.__getitem__))

    def format_missing_cell(self, reason: Reason, mode: Mode) -> str:
        """Return the text of a cell whose measurement has no value."""
        cell = self._find(reason).cell
        return cell if mode is Mode.TENSOR or cell == NAN else NOT_AVAILABLE

    def _find(self, reason: Reason) -> Text:
        return self.by_code.get(reason.code, _UNKNOWN_TEXT)
