"""Result of the table of checksums."""

from __future__ import annotations

from probe_core.dtypes import same
from probe_core.measure import OpenPair
from probe_core.messages import NOT_AVAILABLE
from probe_core.model import Level, Measurements, Reason, Verdict


class ChecksumResult:
    """Pass where checksum, shape and dtype agree, else Different; N/A without partner (decision D9)."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on one pair."""
        if not pair.pair.matched:
            return Verdict(Level.WARNING, NOT_AVAILABLE)
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
        if not differences:
            return Verdict(Level.PASS, "Pass")
        evidence = Reason("evidence", f"{' and '.join(differences)} differ")
        return Verdict(Level.ERROR, "Different", (evidence,), failed=True)
