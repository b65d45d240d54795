"""Results of the search for the first value that is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from probe_core.model.run import Run
from probe_watch.nan_analysis.levels import CallLevel
from probe_watch.nan_analysis.marks import InfinitySource, ValueMark


class NonFiniteOrigin(str, Enum):
    """Ways in which a value that is not finite arose."""

    COMPUTED = "computed"
    """A call returned it, and received finite values only."""
    ARGUMENT = "argument"
    """A call returned it, and was called with an argument that is not finite."""
    INFINITY = "infinity"
    """A call made it of an infinity that is meant to be there, such as a mask that hides a whole row."""
    COMMUNICATION = "communication"
    """A communication call delivered it, and all ranks sent finite values."""
    UNRECORDED_RANK = "unrecorded_rank"
    """A communication call delivered it, and ranks without a record took part."""
    PARAMETER = "parameter"
    """It was in a parameter before any recorded call."""
    DATA = "data"
    """A call received it, and no recorded call returned it."""
    GRADIENT = "gradient"
    """A backward call received it, and no recorded call returned it."""
    PARAMETER_GRADIENT = "parameter_gradient"
    """It is in the gradient of a parameter, and no recorded call returned it."""


@dataclass(frozen=True, slots=True)
class NonFiniteValue:
    """A value of a call that is not finite.

    Attributes:
        name: The name of its row.
        kinds: What it holds: ``nan``, ``inf``, ``-inf``.
        dtype: Its dtype.
        shape: The text of its shape.
        maximum: The recorded maximum.
        minimum: The recorded minimum.
    """

    name: str
    kinds: tuple[str, ...]
    dtype: str
    shape: str
    maximum: object
    minimum: object


@dataclass(frozen=True, slots=True)
class NonFiniteCall:
    """A call with values that are not finite, which no earlier value explains.

    Attributes:
        rank: The rank.
        number: The index of the call in the run of the rank.
        op: The key of the call.
        origin: The way in which the values arose.
        value: The value that shows it.
        argument: The name of the row of the argument that is not finite; empty for none.
        absent: The ranks without a record that may have sent the value.
        infinity: The origin of the infinity that the call received; None for other origins.
        modules: The modules around the call, innermost first.
        where: The line of code; empty if not recorded.
        unknown: Number of inputs of the call that were recorded without statistics.
    """

    rank: int
    number: int
    op: str
    origin: NonFiniteOrigin
    value: NonFiniteValue
    argument: str = ""
    absent: tuple[int, ...] = ()
    infinity: InfinitySource | None = None
    modules: tuple[str, ...] = ()
    where: str = ""
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class NonFiniteArrival:
    """The first call of a rank with values that are not finite.

    Attributes:
        rank: The rank.
        op: The key of the call.
        senders: The ranks that sent the values, if the call is communication; empty for others.
        where: The line of code; empty if not recorded.
    """

    rank: int
    op: str
    senders: tuple[int, ...]
    where: str


@dataclass(frozen=True, slots=True)
class RankRecord:
    """Calls and values of one rank that are not finite.

    Attributes:
        run: The run of the rank.
        levels: The calls that have a level.
        marks: Number of values with each mark.
        unknown: Number of floating-point tensors without statistics.
        tensors: Number of tensors.
    """

    run: Run
    levels: tuple[CallLevel, ...]
    marks: Mapping[ValueMark, int]
    unknown: int
    tensors: int


@dataclass(frozen=True, slots=True)
class NonFiniteAnalysis:
    """Result of the search in one step.

    Attributes:
        step: The name of the step's directory; empty if not known.
        ranks: The ranks by number.
        first: The calls that no earlier value explains, earliest first.
        further: Later calls that return what is not finite although they received finite values only.
        path: The first call of each rank with harmful values, in the order in which they spread.
    """

    step: str
    ranks: Mapping[int, RankRecord]
    first: tuple[NonFiniteCall, ...]
    further: tuple[NonFiniteCall, ...]
    path: tuple[NonFiniteArrival, ...]
