"""Policy behind the column Result of the checksum table."""

from __future__ import annotations

import re

from probe_core.model import Kind, Level, Measurements, Reason, Verdict
from probe_core.model.dtypes import same
from probe_core.model.measure import OpenPair
from probe_core.model.messages import NOT_AVAILABLE

_XOR_OF_ZERO = re.compile("0x0+")


class ChecksumResult:
    """Labels ``Pass`` (checksum, shape and dtype agree), ``Different``, or ``N/A`` (a row without partner).

    The level is SKIP where the label ``Pass`` proves nothing: neither side has a checksum, or both have an
    exclusive or (xor) of zero. An xor is zero for all zeros, and for any value that occurs an even number of
    times, nan and inf included. Tensors without elements are compared like any other.

    Source: docs/tables.md#checksum-result, by the comparison guide of msprobe 8.3; the level is probe's own.
    """

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on one pair."""
        if not pair.pair.matched:
            return Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
        target, golden = (slot.value for slot in pair.slots)
        differences = [
            name
            for name, differs in (
                ("shape", target.extent != golden.extent),
                ("dtype", not same(target.dtype, golden.dtype)),
                ("checksum", target.checksum != golden.checksum),
            )
            if differs
        ]
        if not differences and target.kind is Kind.TENSOR:
            if target.checksum is None:
                return Verdict(Level.SKIP, "Pass", (Reason("evidence", "no checksum is on record"),))
            if _XOR_OF_ZERO.fullmatch(target.checksum) and not target.is_empty:
                return Verdict(Level.SKIP, "Pass", (Reason("xor_of_zero"),))
        if not differences:
            return Verdict(Level.PASS, "Pass")
        evidence = Reason("evidence", f"{' and '.join(differences)} differ")
        return Verdict(Level.ERROR, "Different", (evidence,), failed=True)
