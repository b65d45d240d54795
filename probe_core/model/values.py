"""Values as a recorder wrote them: statistics, slots and records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Union

Statistic = Union[int, float, bool, str, None]
"""A recorded statistic: a number, a truth value, a scalar's text, or nothing."""


class Mode(str, Enum):
    """What the two runs recorded, and therefore what can be compared."""

    TENSOR = "tensor"
    STATISTICS = "statistics"
    MD5 = "md5"


class Side(str, Enum):
    """Where in its record a slot stands."""

    INPUT = "input"
    PARAMETERS = "parameters"
    OUTPUT = "output"
    PARAMETERS_GRAD = "parameters_grad"
    DEBUG = "debug"

    @property
    def is_source(self) -> bool:
        """True for what a call took in, False for what it gave out."""
        return self in (Side.INPUT, Side.PARAMETERS)


class Kind(str, Enum):
    """What a leaf of a record is."""

    TENSOR = "tensor"
    SCALAR = "scalar"
    NULL = "null"


class Statistics(NamedTuple):
    """Maximum, minimum, mean and L2 norm as recorded; a scalar repeats its value four times."""

    max: Statistic = None
    min: Statistic = None
    mean: Statistic = None
    norm: Statistic = None

    def four(self) -> tuple[Statistic, Statistic, Statistic, Statistic]:
        """The four in the order of the tables."""
        return self.max, self.min, self.mean, self.norm


class Transfer(NamedTuple):
    """What a tensor is for in a list of sends and receives: which of both, and the other rank."""

    op: str
    peer: int


class Value(NamedTuple):
    """One recorded leaf: tensor metadata, a scalar, or null.

    ``dtype`` and ``extent`` are the texts of the dtype and shape cells; ``shape`` is set for
    tensors only; ``data_name`` names the tensor file where the recorder wrote one; ``p2p`` says what
    a tensor of ``batch_isend_irecv`` is for.
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

    @property
    def is_empty(self) -> bool:
        """True for a tensor without elements."""
        return self.shape is not None and 0 in self.shape


class Slot(NamedTuple):
    """A leaf value in its place: side, path within the side, and the name of its row."""

    name: str
    side: Side
    path: str
    value: Value

    @property
    def place(self) -> tuple[Side, str]:
        """Where the value stands in its record, whatever the record is called."""
        return self.side, self.path


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded call of an API or a module, or one saved variable."""

    index: int
    key: str
    slots: tuple[Slot, ...]
