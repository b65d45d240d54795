"""Policy of the column Result of the checksum table."""

from __future__ import annotations

import re

import numpy as np
from probe_reporters.api import NOT_AVAILABLE

from probe_core.model import Level, Reason, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.columns import TENSOR
from probe_core.model.results import VerdictColumn
from probe_metrics.adapters import BatchPolicyBase
from probe_metrics.checksum import have_equal_checksums

_XOR_OF_ZERO_PATTERN = re.compile("0x0+")


class ChecksumResult(BatchPolicyBase):
    """Labels ``Pass`` (checksum, shape and dtype agree), ``Different``, or ``N/A`` (a row without a partner).

    The level is SKIP if the label ``Pass`` proves nothing: neither side has a checksum, or both checksums are an
    exclusive or (xor) of zero. The xor is zero for all zeros, and for any value that occurs an even number of
    times, including nan and inf. Tensors without elements are compared like other tensors.

    Source: docs/tables.md#checksum-result, which follows the comparison guide of msprobe 8.3. The level is defined
    by probe.
    """

    def judge_batch(self, batch: RowBatch) -> VerdictColumn:
        """Return the verdict on each row."""
        differences = (~batch.have_equal_extents, ~batch.have_same_dtypes, ~have_equal_checksums(batch))
        codes = np.zeros(len(batch), np.int32)
        for place, differs in enumerate(differences):
            codes |= differs.astype(np.int32) << place
        checksums, shapes = batch.target.checksums(), batch.target.columns.extents
        is_equal_tensor = batch.is_matched & (codes == 0) & (batch.target.column("kind") == TENSOR)
        for line in np.flatnonzero(is_equal_tensor).tolist():
            checksum = checksums[line]
            if checksum is None:
                codes[line] = NO_CHECKSUM_CODE
            elif _XOR_OF_ZERO_PATTERN.fullmatch(checksum) and 0 not in (
                shapes[batch.target.column("extent")[line]][1] or ()
            ):
                codes[line] = XOR_OF_ZERO_CODE
        codes[~batch.is_matched] = UNPAIRED_CODE
        return VerdictColumn(VERDICTS, codes)


def _create_difference_verdict(*names: str) -> Verdict:
    evidence = Reason("evidence", f"{' and '.join(names)} differ")
    return Verdict(Level.ERROR, "Different", (evidence,), failed=True)


UNPAIRED_CODE, NO_CHECKSUM_CODE, XOR_OF_ZERO_CODE = 8, 9, 10
"""Codes of further verdicts; lower codes have a bit for each of a different shape, dtype and checksum."""
VERDICTS = (
    Verdict(Level.PASS, "Pass"),
    _create_difference_verdict("shape"),
    _create_difference_verdict("dtype"),
    _create_difference_verdict("shape", "dtype"),
    _create_difference_verdict("checksum"),
    _create_difference_verdict("shape", "checksum"),
    _create_difference_verdict("dtype", "checksum"),
    _create_difference_verdict("shape", "dtype", "checksum"),
    Verdict(Level.WARNING, NOT_AVAILABLE, measured=False),
    Verdict(Level.SKIP, "Pass", (Reason("evidence", "no checksum is on record"),)),
    Verdict(Level.SKIP, "Pass", (Reason("xor_of_zero"),)),
)
