"""The tables of a comparison: a list of columns for each mode.

Headers and their order are those of the msprobe 8.3 guide (docs/tables.md#columns).
"""

from __future__ import annotations

from probe_core.model import Column, Mode
from probe_reporters.table import CONSISTENT_COLUMN, MESSAGE_COLUMN, STACK_COLUMN


def _create_side_columns(header: str, field: str, names: tuple[str, str] = ("NPU", "Bench")) -> tuple[Column, ...]:
    target, golden = names
    return (
        Column(f"{target} {header}", f"target.{field}"),
        Column(f"{golden} {header}", f"golden.{field}"),
    )


COMMON = (
    *_create_side_columns("Name", "name"),
    *_create_side_columns("Dtype", "dtype"),
    *_create_side_columns("Tensor Shape", "shape"),
    *_create_side_columns("Requires_grad", "requires_grad"),
)
STATISTICS = tuple(
    Column(f"{side} {header}", f"{source}.{header}")
    for side, source in (("NPU", "target"), ("Bench", "golden"))
    for header in ("max", "min", "mean", "l2norm")
)
DATA_NAME = Column("Data_name", "row.data_name")

COLUMNS: dict[Mode, tuple[Column, ...]] = {
    Mode.TENSOR: (
        *COMMON,
        Column("Cosine", "cosine.Cosine", "cosine"),
        Column("EucDist", "euclidean.EucDist"),
        Column("MaxAbsErr", "max_error.MaxAbsErr", "decimals"),
        Column("MaxRelativeErr", "max_error.MaxRelativeErr", "decimals"),
        Column("One Thousandth Err Ratio", "error_ratio.One Thousandth Err Ratio", "decimals"),
        Column("Five Thousandths Err Ratio", "error_ratio.Five Thousandths Err Ratio", "decimals"),
        *STATISTICS,
        CONSISTENT_COLUMN,
        Column("Accuracy Reached or Not", "row.label"),
        MESSAGE_COLUMN,
        STACK_COLUMN,
        DATA_NAME,
    ),
    Mode.STATISTICS: (
        *COMMON,
        *(Column(f"{name} diff", f"statistics.{name} diff") for name in ("Max", "Min", "Mean", "L2norm")),
        *(
            Column(f"{name}RelativeErr", f"statistics.{name}RelativeErr", "percent")
            for name in ("Max", "Min", "Mean", "Norm")
        ),
        *STATISTICS,
        CONSISTENT_COLUMN,
        Column("Result", "row.label"),
        MESSAGE_COLUMN,
        STACK_COLUMN,
    ),
    Mode.MD5: (
        *COMMON,
        Column("NPU MD5", "target.checksum"),
        Column("BENCH MD5", "golden.checksum"),
        CONSISTENT_COLUMN,
        Column("Result", "row.label"),
        STACK_COLUMN,
    ),
}


def get_tensor_columns() -> tuple[Column, ...]:
    """Return the columns for runs with tensors."""
    return COLUMNS[Mode.TENSOR]


def get_statistics_columns() -> tuple[Column, ...]:
    """Return the columns for runs with statistics."""
    return COLUMNS[Mode.STATISTICS]


def get_md5_columns() -> tuple[Column, ...]:
    """Return the columns for runs with checksums."""
    return COLUMNS[Mode.MD5]
