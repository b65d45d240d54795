"""The elements of an array that belong to chosen samples and tokens."""

from __future__ import annotations

import numpy as np

from probe_core.model.columns import Array
from probe_matching.rows.axes import AxisPart, Layout
from probe_matching.rows.places import Places


def gather(array: Array, layout: Layout, places: Places) -> Array:
    """Return a copy of the elements at the places of a batch.

    Args:
        array: The value, of the shape that ``layout`` describes; an axis of one sample may be missing.
        layout: The parts of its axes.
        places: The places.

    Returns:
        Without tokens, the samples along their own axis, the other axes unchanged. With one axis of tokens, an array
        of shape (tokens, remaining axes …). With two axes of tokens, an array of shape (pairs of tokens, remaining
        axes …). For example, attention weights of shape (2, 8, 5, 5) give shape (9, 8) for 3 tokens of one sample.

    Raises:
        ValueError: The array has another shape.
    """
    parts = layout.parts
    split = array.reshape(layout.compute_sizes(places.batch))
    rows = [pick.row for pick in places.picks]
    if not layout.has_tokens:
        if not layout.has_samples:
            return np.ascontiguousarray(array)
        return np.ascontiguousarray(split.take(rows, axis=parts.index(AxisPart.SAMPLE)))
    order = [n for kind in AxisPart for n, part in enumerate(parts) if part is kind]
    others = [n for n, part in enumerate(parts) if isinstance(part, int)]
    moved = split.transpose(*order, *others)
    if not layout.has_samples:
        moved = moved[np.newaxis]
    blocks = []
    for pick in places.picks:
        sample = moved[pick.row if layout.has_samples else 0]
        assert pick.tokens is not None
        if parts.count(AxisPart.TOKEN) == 1:
            blocks.append(sample[pick.tokens])
        else:
            block = sample[np.ix_(pick.tokens, pick.tokens)]
            blocks.append(block.reshape(-1, *block.shape[2:]))
    return np.concatenate(blocks)
