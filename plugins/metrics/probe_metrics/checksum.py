"""Equality of recorded checksums."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair


class Checksum:
    """True where both recorded checksums are one text; both absent count as equal (decision D9)."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Whether the checksums agree."""
        target, golden = pair.slots
        return [Measurement(target.value.checksum == golden.value.checksum)]
