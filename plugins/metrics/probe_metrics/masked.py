"""Distance of two tensors without the constants of an additive mask, beside which all else would vanish."""

from __future__ import annotations

import math

import numpy as np

from probe_core.model.measure import OpenPair
from probe_metrics.thresholds import thresholds


def is_masked(low: float, high: float) -> bool:
    """Return True if the extrema of a tensor are those of a tensor with masked elements.

    A mask adds a large negative number, such as -1e9 or the least number of the dtype; what it leaves is
    smaller by orders of magnitude. The limits are in ``thresholds.yaml`` (``drift``, ``mask``).
    """
    limits = thresholds("drift")["mask"]
    return math.isfinite(low) and low <= -limits["least"] and abs(high) <= limits["share"] * abs(low)


def unmasked(pair: OpenPair) -> tuple[float, float] | None:
    """Return the root mean square of the difference and of the golden over all unmasked elements.

    Masked are the elements within ``share`` of the golden's minimum. None if there are none unmasked, or if
    elements lie between both groups, so that it is no mask. nan and inf count as masked.
    """
    share = thresholds("drift")["mask"]["share"]
    low = min(
        float(np.min(golden.real, initial=0.0, where=np.isfinite(golden))) for _, golden in pair.blocks()
    )
    differences, squares, count = 0.0, 0.0, 0
    for target, golden in pair.blocks():
        finite = np.isfinite(golden) & np.isfinite(target)
        is_small = finite & (np.abs(golden) <= share * abs(low))
        is_mask = finite & (np.abs(golden - low) <= share * abs(low))
        if np.any(finite & ~is_small & ~is_mask):
            return None
        kept = golden[is_small]
        differences += float(np.sum(np.abs(target[is_small] - kept) ** 2))
        squares += float(np.sum(np.abs(kept) ** 2))
        count += kept.size
    return (math.sqrt(differences / count), math.sqrt(squares / count)) if count else None
