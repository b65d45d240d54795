"""Columns of a run that are filled from its records, and from parts that compiled code has read."""

from __future__ import annotations

import numpy as np

from probe_core.model import Transfer
from probe_core.model.columns import TENSOR, TEXT, ColumnsBuilder, ValueColumns


class RunColumnsBuilder(ColumnsBuilder):
    """Columns of a run that are being filled, by records and by parts."""

    def extend(self, part: ValueColumns) -> None:
        """Append the values of further records."""
        start = len(self)
        names = part.row_names(np.arange(len(part)))
        for first, last in zip(part.starts, part.starts[1:]):
            self.signatures.append(hash(tuple(names[first:last])))
            self.starts.append(start + last)
        self._keys += part.keys
        for column, table, codes, part_table in (
            (self._place, self._places, part.place, part.places),
            (self._dtype, self._dtypes, part.dtype, part.dtypes),
            (self._extent, self._extents, part.extent, part.extents),
            (self._data, self._endings, part.data, part.endings),
        ):
            places = np.array([*map(table.encode, part_table), -1], np.intc)
            column.frombytes(places[codes].tobytes())
        self._kind += part.kind.tobytes()
        self._grad.frombytes(part.grad.tobytes())
        self._types += part.types.tobytes()
        are_texts = part.types == TEXT
        numbers = part.numbers
        if are_texts.any():
            codes = np.array([*map(self._texts.encode, part.texts)], np.float64)
            numbers = numbers.copy()
            numbers[are_texts] = codes[numbers[are_texts].astype(int)]
        self._numbers.frombytes(numbers.tobytes())
        self._checksums += part.checksums
        tensors = np.flatnonzero(part.kind == TENSOR).tolist()
        self.has_checksum |= any(part.checksums[row] is not None for row in tensors)
        self._names.update({start + row: name for row, name in part.names.items()})
        self._omissions.update({start + row: code for row, code in part.omissions.items()})

    def set_transfer(self, start: int, transfer: Transfer) -> None:
        """Set the transfer of all lines from ``start`` on."""
        self._transfers.update(dict.fromkeys(range(start, len(self)), transfer))
