"""Equality of the recorded checksums."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair


class Checksum:
    """Equality of the checksums in both records; no data are read.

    The result is True or False. Shape, values and dtype play no part: nan, inf, -0.0, zeros and tensors
    without elements are what their checksums are. Two absent checksums count as equal, one absent checksum
    does not.

    Source: docs/tables.md#checksum-result, by the comparison guide of msprobe 8.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return True if the checksums agree."""
        target, golden = pair.slots
        return [Measurement(target.value.checksum == golden.value.checksum)]
