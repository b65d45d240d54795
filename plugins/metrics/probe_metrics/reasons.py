"""Texts that tables show for the reasons of metrics, policies and the highlighter.

The texts of msprobe 8.3 are listed in docs/tables.md#messages; others are probe's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from probe_reporters.api import NAN, NOT_AVAILABLE, Text

ZERO_DIMENSIONAL = (
    "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', "
    "'One Thousandth Err Ratio' and 'Five Thousandths Err Ratio'."
)
ALL_ZERO = "Cannot compare by Cosine Similarity, All the data is Zero in {} dump data."

REASONS: Mapping[str, Text] = {
    "zero_dimensional": Text(ZERO_DIMENSIONAL, 20),
    "equal": Text(),
    "exact": Text("Integer or boolean values of NPU and bench do not match.", 20),
    "exact_in_last_digits": Text(
        "Mean or norm of the integers differs by what rounding, or a small difference, explains.", 20
    ),
    "double_check": Text("Need double check api accuracy.", 30),
    "one_element": Text("This is a 1-d tensor of length 1.", 50),
    "target_zero": Text(ALL_ZERO.format("npu"), 50, NAN),
    "golden_zero": Text(ALL_ZERO.format("Bench"), 50, NAN),
    "cosine_nan": Text("Cannot compare by Cosine Similarity, the dump data has NaN.", 50, NAN),
    "zero_golden": Text(cell=NOT_AVAILABLE),
    "xor_of_zero": Text("The xor is zero on both sides, as it is of any values that cancel.", 20),
    "mark_nonfinite": Text("maximum or minimum is nan, -inf, or inf"),
    "mark_absolute": Text("maximum absolute error exceeds 1e+10"),
    "mark_ratio": Text("The input/parameter's one thousandth err ratio exceeds 0.9, while the output's is below 0.6"),
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
    "mark_cosine_drop": Text("The output's cosine decreases by more than 0.1 compared to the input/parameter's"),
    "mark_requires_grad": Text("requires_grad is inconsistent"),
}
