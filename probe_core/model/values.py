"""Recorded values: statistics, leaves, slots and records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Union

Statistic = Union[int, float, bool, str, None]
"""A recorded statistic: a number, a boolean, the text of a scalar, or None."""


class Mode(str, Enum):
    """Kinds of recorded data that can be compared."""

    TENSOR = "tensor"
    STATISTICS = "statistics"
    MD5 = "md5"


class Side(str, Enum):
    """Positions of a value within its call; ``is_source`` is True for values that a call receives."""

    INPUT = "input"
    PARAMETERS = "parameters"
    OUTPUT = "output"
    PARAMETERS_GRAD = "parameters_grad"
    DEBUG = "debug"
    is_source: bool

    def __init__(self, text: str) -> None:
        self.is_source = text in ("input", "parameters")  # an attribute and not a property: it is read for every value


class Kind(str, Enum):
    """Kinds of recorded leaves."""

    TENSOR = "tensor"
    SCALAR = "scalar"
    NULL = "null"


class Statistics(NamedTuple):
    """The recorded maximum, minimum, mean and L2 norm; a scalar repeats its value four times."""

    max: Statistic = None
    min: Statistic = None
    mean: Statistic = None
    norm: Statistic = None


OMISSIONS = ("row_shared", "row_reduced", "row_size", "row_axis")
"""Codes of the reasons for which a comparison of rows leaves a value out."""


class Transfer(NamedTuple):
    """The direction of a point-to-point transfer (send or receive) and the rank at its other end."""

    op: str
    peer: int


class Value(NamedTuple):
    """A recorded leaf: tensor metadata, a scalar, or null.

    Attributes:
        dtype: The text of the dtype cell.
        extent: The text of the shape cell.
        shape: The dimensions of a tensor; None for other leaves.
        data_name: The name of the tensor file; None if none was written.
        p2p: The transfer that a tensor of ``batch_isend_irecv`` belongs to.
        omission: One of ``OMISSIONS`` for a value that is not to be compared; empty for all others.
    """

    kind: Kind
    dtype: str
    extent: str
    shape: tuple[int, ...] | None = None
    statistics: Statistics = Statistics()
    checksum: str | None = None
    requires_grad: bool | None = None
    data_name: str | None = None
    p2p: Transfer | None = None
    omission: str = ""

    @property
    def is_empty(self) -> bool:
        """Return True for a tensor without elements."""
        return self.shape is not None and 0 in self.shape


class Slot(NamedTuple):
    """A recorded value with its side and path in its record, and the name of its row."""

    name: str
    side: Side
    path: str
    value: Value

    @property
    def place(self) -> tuple[Side, str]:
        """The side and path of the value, which do not depend on the name of its record."""
        return self.side, self.path


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded call of an API or a module, or a saved variable.

    Attributes:
        index: Its position in the run.
        key: Its name.
        slots: Its values, in the order in which they were recorded.
    """

    index: int
    key: str
    slots: tuple[Slot, ...]
