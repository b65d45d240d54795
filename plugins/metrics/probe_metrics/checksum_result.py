"""Result of the table of checksums."""

from __future__ import annotations

import re

from probe_core.model import Kind, Level, Measurements, Reason, Verdict
from probe_core.model.dtypes import same
from probe_core.model.measure import OpenPair
from probe_core.model.messages import NOT_AVAILABLE

_XOR_OF_ZERO = re.compile("0x0+")


class ChecksumResult:
    """Pass where checksum, shape and dtype agree, else Different; N/A without partner (decision D9).

    The level says more where the label proves nothing: a tensor without a checksum on either side, or whose
    xor is zero on both, was not compared. Values that cancel give an xor of zero, such as all zeros, and an
    even number of equal values, whatever they are.
    """

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on one pair."""
        if not pair.pair.matched:
            return Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
        target, golden = (slot.value for slot in pair.slots)
        differences = [
            what
            for what, differs in (
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
