"""The rule by which ptdbg_ascend 3.0 to 6.0 matched groups: names, dtypes and shapes of all rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence

from probe_legacy.compare.dump import Release
from probe_legacy.compare.groups import RowGroup
from probe_legacy.reading.aten import ATEN, find_operators
from probe_legacy.reading.names import parse_ptdbg_name

_NUMBER = re.compile(r"([._])\d{1,9}\1(?=(?:forward|backward)[._])")
HALF, SINGLE, BRAIN = "torch.float16", "torch.float32", "torch.bfloat16"
Dtypes = tuple[str, ...]


class AlikeTensorsRule:
    """Groups match if the names, the dtypes and the shapes of their rows do.

    float16 matches float32 and, from 4.0 on, bfloat16. An Aten operator matches an operator of another family
    that is the same one, whatever its number and its rows.

    Args:
        release: The release of the table.
        fuzzy: True if the numbers of calls may differ.
    """

    newest_first = False

    def __init__(self, release: Release, *, fuzzy: bool) -> None:
        self._fuzzy = fuzzy
        self._mixes = [{HALF, SINGLE}] + ([{HALF, BRAIN}] if release >= Release.V4 else [])
        self._has_aten = release >= Release.V4
        self._seen: dict[Hashable, dict[Dtypes, None]] = defaultdict(dict)

    def list_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the labels under which a group is found."""
        names, dtypes = self._split_group(group)
        self._seen[names][dtypes] = None
        return [(names, dtypes), *(self._list_operator_labels(group, is_aten=True))]

    def list_partner_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the labels that a partner of the group has."""
        names, dtypes = self._split_group(group)
        wanted: list[Hashable] = [(names, others) for others in self._seen[names] if self._are_alike(dtypes, others)]
        return [*wanted, *self._list_operator_labels(group, is_aten=False)]

    def _list_operator_labels(self, group: RowGroup, *, is_aten: bool) -> Sequence[Hashable]:
        """Return labels of the operator of a group; ``is_aten`` is part of those of Aten operators."""
        name = parse_ptdbg_name(group.rows[0].name) if self._has_aten else None
        if name is None or name[0].is_module:
            return []
        family, _, operator = name[0].head.partition(".")
        operator = operator.lower()
        if family == ATEN:
            return [(is_aten, name[0].phase, api) for api in find_operators(operator)]
        return [(not is_aten, name[0].phase, operator)]

    def _split_group(self, group: RowGroup) -> tuple[Hashable, Dtypes]:
        names = [_NUMBER.sub(r"\1\1", row.name) if self._fuzzy else row.name for row in group.rows]
        shapes = [str(row.shape) for row in group.rows]
        return (tuple(names), tuple(shapes)), tuple([row.dtype for row in group.rows])

    def _are_alike(self, npu_dtypes: Dtypes, bench_dtypes: Dtypes) -> bool:
        return all(
            npu_dtype == bench_dtype or {npu_dtype, bench_dtype} in self._mixes
            for npu_dtype, bench_dtype in zip(npu_dtypes, bench_dtypes)
        )
