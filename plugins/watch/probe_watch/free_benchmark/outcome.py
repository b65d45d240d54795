"""The result of comparing one output of a call with that of its second run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OutputDifference(Enum):
    """The kind of a difference between two outputs."""

    RATIO = "ratio"
    SIGN = "symbol_flipping"
    NOT_FINITE = "not_finite"
    VALUE = "value"


class SkipReason(Enum):
    """The reason why a call that is selected was not examined."""

    KIND = "kind"
    RANDOM = "random"
    FAILED = "failed"
    COMPARISON = "comparison"


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """The comparison of one output.

    Attributes:
        consistent: True if both outputs agree within the threshold.
        dtype: The dtype of the program's output, such as ``torch.float32``, or the name of its type.
        shape: Its shape as text; empty if it is no tensor.
        difference: What ``ratio`` measures, or why there is none.
        ratio: The largest ratio of two elements; None if the comparison has none.
        index: The position of the output; None if the call returns a single one.
    """

    consistent: bool
    dtype: str = ""
    shape: str = ""
    difference: OutputDifference = OutputDifference.VALUE
    ratio: float | None = None
    index: int | None = None

    @property
    def dtype_name(self) -> str:
        """The dtype as in the thresholds, such as ``float32`` for ``torch.float32`` and ``Float32``."""
        return self.dtype.removeprefix("torch.").lower()
