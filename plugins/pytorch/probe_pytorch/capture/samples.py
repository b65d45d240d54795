"""Elements of parameters that are compared before and after a step of an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from probe_pytorch import compat
from probe_pytorch.statistics import PLAIN

MAX_SAMPLED_ELEMENTS = 256
"""Approximate number of elements of each parameter that are compared."""


class ParameterSamples:
    """Copies of some elements of parameters, to count those that a step leaves unchanged.

    The samples of one device and dtype are copied and compared together, which is faster.

    Args:
        parameters: The parameters, before the step.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        for parameter in parameters:
            if (sample := _sample(parameter)) is not None:
                groups.setdefault((sample.device, sample.dtype), []).append((id(parameter), sample))
        self._groups = [
            (
                [(number, sample.numel()) for number, sample in group],
                torch.cat([sample for _, sample in group]),
            )
            for group in groups.values()
        ]

    def count_unchanged(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> dict[str, list[int]]:
        """Return the number of unchanged elements and the number of compared elements of each parameter.

        Parameters that were not sampled before, or have another size now, are left out.

        Args:
            parameters: The names and parameters, after the step.
        """
        now = {id(parameter): _sample(parameter) for _, parameter in parameters}
        counts: dict[int, list[int]] = {}
        for sizes, before in self._groups:
            pairs = [
                (number, earlier, later)
                for (number, size), earlier in zip(sizes, before.split([size for _, size in sizes]))
                if (later := now.get(number)) is not None and later.numel() == size
            ]
            if not pairs:
                continue
            if len(pairs) < len(sizes):
                before = torch.cat([earlier for _, earlier, _ in pairs])
            is_equal = (before == torch.cat([later for _, _, later in pairs])).cpu().numpy()
            starts = np.cumsum([0, *(earlier.numel() for _, earlier, _ in pairs[:-1])])
            sums = np.add.reduceat(is_equal, starts, dtype=np.int64).tolist()
            for (number, earlier, _), count in zip(pairs, sums):
                counts[number] = [count, earlier.numel()]
        return {name: counts[id(value)] for name, value in parameters if id(value) in counts}


def _sample(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return a view of some elements of a parameter, the same each time; None of one without elements."""
    local = getattr(parameter, "_local_tensor", parameter).detach()
    if type(local) not in PLAIN or local.layout is not torch.strided:
        return None
    count = local.numel()
    if not count or local.is_meta or compat.is_freed(local) or not local.is_contiguous():
        return None
    stride = max(1, count // MAX_SAMPLED_ELEMENTS)
    stride += stride > 1 and stride % 2 == 0  # an even one would meet few columns of a matrix
    return local.view(-1)[::stride]
