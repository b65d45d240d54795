"""Findings of a dispatch check: what they hold, without any text for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from probe_pytorch.dispatch_check.operators import SkipReason


class OperatorDifferenceKind(Enum):
    """Kind of difference of a result from its reference."""

    ROUNDING = "rounding"
    NON_FINITE = "non_finite"
    UNEQUAL = "unequal"
    STRUCTURE = "structure"


@dataclass(frozen=True, slots=True)
class OperatorDifference:
    """Difference of one result from its reference.

    Attributes:
        kind: The kind of difference.
        output: The number of the result.
        dtype: The dtype of the result, such as ``torch.float32``; empty if it is no tensor.
        reference_dtype: The dtype of the reference.
        shape: The shape of the result.
        error: The relative error, root mean square; for ``UNEQUAL`` the share of unequal elements.
        rounding: The error that rounding explains.
        elements: For ``NON_FINITE`` the number of elements that are nan or infinite on one side alone.
    """

    kind: OperatorDifferenceKind
    output: int
    dtype: str = ""
    reference_dtype: str = ""
    shape: tuple[int, ...] = ()
    error: float = 0.0
    rounding: float = 0.0
    elements: int = 0


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Place in the program that called an operator.

    Attributes:
        module: The path of the innermost module within the outermost one; empty for the outermost itself.
        module_class: The class of that module; empty outside of modules.
        file: The path of the source file; empty if it is not known.
        line: The line.
    """

    module: str = ""
    module_class: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class OperatorFinding:
    """Wrong result of an operator.

    Attributes:
        number: The number of the call among all calls of the block.
        name: The name of the call, such as ``Aten.mm.3``, as in the csv files.
        operator: The operator with its overload, such as ``aten.mm.default``.
        phase: ``forward`` or ``backward``.
        difference: The first result that is wrong.
        origin: The place in the program; of a call in a backward, that of its forward if it is known.
        forward: The name of the forward call that a call in a backward belongs to; empty if it is not known.
    """

    number: int
    name: str
    operator: str
    phase: str
    difference: OperatorDifference
    origin: CallOrigin = CallOrigin()
    forward: str = ""


@dataclass(slots=True)
class CallCounts:
    """Numbers of calls.

    Attributes:
        compared: The number of calls that were compared.
        wrong: The number of calls with a wrong result.
        operators: The number of compared calls by operator.
        wrong_operators: The number of wrong calls by operator.
        skipped: The number of other calls by the reason and the operator.
    """

    compared: int = 0
    wrong: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    wrong_operators: Counter[str] = field(default_factory=Counter)
    skipped: Counter[tuple[SkipReason, str]] = field(default_factory=Counter)

    def count_skipped(self, reason: SkipReason) -> int:
        """Return the number of calls that were not compared for a reason."""
        return sum(count for (each, _), count in self.skipped.items() if each is reason)
