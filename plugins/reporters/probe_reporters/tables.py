"""The tables of a comparison: a list of columns for each mode.

Headers and their order are those of the msprobe 8.3 guide (docs/tables.md#columns).
"""

from __future__ import annotations

from probe_core.flow.table import CONSISTENT, MESSAGE, STACK
from probe_core.model import Column, Mode


def _sides(header: str, field: str, names: tuple[str, str] = ("NPU", "Bench")) -> tuple[Column, ...]:
    target, golden = names
    return (
        Column(f"{target} {header}", f"target.{field}"),
        Column(f"{golden} {header}", f"golden.{field}"),
    )


COMMON = (
    *_sides("Name", "name"),
    *_sides("Dtype", "dtype"),
    *_sides("Tensor Shape", "shape"),
    *_sides("Requires_grad", "requires_grad"),
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
        CONSISTENT,
        Column("Accuracy Reached or Not", "row.label"),
        MESSAGE,
        STACK,
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
        CONSISTENT,
        Column("Result", "row.label"),
        MESSAGE,
        STACK,
    ),
    Mode.MD5: (
        *COMMON,
        Column("NPU MD5", "target.checksum"),
        Column("BENCH MD5", "golden.checksum"),
        CONSISTENT,
        Column("Result", "row.label"),
        STACK,
    ),
}


def tensor() -> tuple[Column, ...]:
    """Return the columns for runs with tensors."""
    return COLUMNS[Mode.TENSOR]


def statistics() -> tuple[Column, ...]:
    """Return the columns for runs with statistics."""
    return COLUMNS[Mode.STATISTICS]


def md5() -> tuple[Column, ...]:
    """Return the columns for runs with checksums."""
    return COLUMNS[Mode.MD5]
