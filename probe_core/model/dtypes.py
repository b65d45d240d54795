"""Names of dtypes across frameworks: ``package.float32`` and ``Float32`` are the same dtype."""

from __future__ import annotations

import re
from functools import lru_cache

_KIND = re.compile(r"(bool|complex|u?int|b?float)\d*(?:_?e\dm\d\w*)?$")


@lru_cache(maxsize=1024)
def normalize_dtype(dtype: str) -> str:
    """Return the name of a dtype that all frameworks share, such as ``float32``; keep other texts."""
    name = dtype.rpartition(".")[2].lower()
    return name if _KIND.match(name) else dtype


def is_same_dtype(first: str, second: str) -> bool:
    """Return True if two names denote the same dtype; their spellings may differ."""
    return first == second or normalize_dtype(first) == normalize_dtype(second)


def is_foreign_spelling(first: str, second: str) -> bool:
    """Return True if two dtypes are spelled in the ways of different frameworks."""
    return first.rpartition(".")[0] != second.rpartition(".")[0]


@lru_cache(maxsize=1024)
def get_dtype_kind(dtype: str) -> str:
    """Return the sort of a dtype: ``float``, ``int``, ``bool`` or ``complex``.

    Fuzzy and cross-framework pairing compare dtypes by their sorts (docs/pairing.md#what-must-agree).
    """
    match = _KIND.match(normalize_dtype(dtype))
    return {"uint": "int", "bfloat": "float"}.get(match[1], match[1]) if match else dtype
