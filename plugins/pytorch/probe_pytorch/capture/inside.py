"""Calls inside of torch's own functions that go around the public names, such as ``_VF.dropout``."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

AROUND = ("_VF", "_VariableFunctions")
"""Objects of torch that hold the functions of ``torch`` a second time."""


@lru_cache(maxsize=1024)
def reached_around(code: CodeType) -> frozenset[str]:
    """Return the names of the functions of ``torch`` that code reaches by other objects than ``torch``."""
    found = set()
    last = ""
    for instruction in dis.get_instructions(code):
        if last in AROUND and instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            found.add(str(instruction.argval))
        if instruction.opname.startswith("LOAD_"):
            last = str(instruction.argval)
        elif instruction.opname not in ("CACHE", "PUSH_NULL"):
            last = ""
    return frozenset(found)
