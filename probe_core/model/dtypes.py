"""Dtypes as the frameworks spell them: ``package.float32`` and ``Float32`` are one."""

from __future__ import annotations

import re
from functools import lru_cache

_KIND = re.compile(r"(bool|complex|u?int|b?float)\d*(?:_?e\dm\d\w*)?$")


@lru_cache(maxsize=1024)
def folded(dtype: str) -> str:
    """The dtype in words that all frameworks share: ``float32``; a text that is no dtype stays as it is."""
    name = dtype.rpartition(".")[2].lower()
    return name if _KIND.match(name) else dtype


def same(first: str, second: str) -> bool:
    """True for one dtype, however it is spelled."""
    return first == second or folded(first) == folded(second)


def foreign(first: str, second: str) -> bool:
    """True for dtypes that two frameworks spelled, of which one notes no ``requires_grad``."""
    return first.rpartition(".")[0] != second.rpartition(".")[0]


@lru_cache(maxsize=1024)
def kind(dtype: str) -> str:
    """The sort of a dtype: ``float``, ``int``, ``bool`` or ``complex`` (spec/compare 4.2)."""
    found = _KIND.match(folded(dtype))
    return {"uint": "int", "bfloat": "float"}.get(found[1], found[1]) if found else dtype
