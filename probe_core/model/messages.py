"""What the reason codes say in the tables: the seed's messages and the texts of empty cells.

``rank`` is the place of a message within its cell (decision D15); a code without message is
evidence for the summary and never stands in a table. ``cell`` is what stands in a tensor table
where a number was not to be had; tables of statistics know only ``N/A`` and ``Nan``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from probe_core.model import Mode, Reason

NOT_AVAILABLE = "N/A"
UNSUPPORTED = "unsupported"
NAN = "Nan"


@dataclass(frozen=True, slots=True)
class Text:
    """The message of a reason, its place among others, and the cell it leaves."""

    message: str = ""
    rank: int = 0
    cell: str = UNSUPPORTED


ZERO_DIMENSIONAL = (
    "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', "
    "'One Thousandth Err Ratio' and 'Five Thousandths Err Ratio'."
)
ALL_ZERO = "Cannot compare by Cosine Similarity, All the data is Zero in {} dump data."

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
    "zero_dimensional": Text(ZERO_DIMENSIONAL, 20),
    "unreadable_data": Text("Data is unreadable.", 20),
    "scalar_differs": Text("Scalar of NPU and bench do not match.", 20),
    "not_a_tensor": Text(),
    "exact": Text("Integer or boolean values of NPU and bench do not match.", 20),
    "exact_in_last_digits": Text(
        "Mean or norm of the integers differs by what rounding, or a small difference, explains.", 20
    ),
    # what the measurements say
    "double_check": Text("Need double check api accuracy.", 30),
    "dtype": Text("Dtype of NPU and bench Tensor do not match.", 40),
    "one_element": Text("This is a 1-d tensor of length 1.", 50),
    "target_zero": Text(ALL_ZERO.format("npu"), 50, NAN),
    "golden_zero": Text(ALL_ZERO.format("Bench"), 50, NAN),
    "cosine_nan": Text("Cannot compare by Cosine Similarity, the dump data has NaN.", 50, NAN),
    "metric_failed": Text("Metric failed: {}.", 50, NOT_AVAILABLE),
    "region": Text("Calls of NPU and bench do not line up here.", 60),
    "fuzzy": Text("Fuzzy matching data, the comparison accuracy may be affected.", 60),
    # cells without a message
    "nan": Text(cell=NAN),
    "no_number": Text(cell=NOT_AVAILABLE),
    "zero_golden": Text(cell=NOT_AVAILABLE),
    "xor_of_zero": Text("The xor is zero on both sides, as it is of any values that cancel.", 20),
    # evidence of verdicts, for the summary
    "evidence": Text(),
    # marks of highlighted rows
    "mark_nonfinite": Text("maximum or minimum is nan, -inf, or inf"),
    "mark_absolute": Text("maximum absolute error exceeds 1e+10"),
    "mark_ratio": Text(
        "The input/parameter's one thousandth err ratio exceeds 0.9, while the output's is below 0.6"
    ),
    "mark_relative": Text("maximum relative error exceeds 0.5"),
    "mark_magnitude": Text(
        "maximum absolute error of both input/parameters and output exceed 1, "
        "with the output larger by an order of magnitude"
    ),
    "mark_ratio_drop": Text(
        "The output's one thousandth err ratio decreases by more than 0.1 compared to the input/parameter's"
    ),
    "mark_relative_jump": Text(
        "The output's maximum relative error exceeds 0.1, while the input/parameter's is below 0.01"
    ),
    "mark_cosine_drop": Text(
        "The output's cosine decreases by more than 0.1 compared to the input/parameter's"
    ),
    "mark_requires_grad": Text("requires_grad is inconsistent"),
}


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
