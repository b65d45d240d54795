"""Calls inside of torch's own functions that go around the public names, such as ``_VF.dropout``."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

TORCH_ALIASES = ("_VF", "_VariableFunctions")
"""Objects of torch that hold the functions of ``torch`` a second time."""


@lru_cache(maxsize=1024)
def find_indirect_names(code: CodeType) -> frozenset[str]:
    """Return the names of the functions of ``torch`` that code reaches by other objects than ``torch``."""
    names = set()
    last = ""
    for instruction in dis.get_instructions(code):
        if last in TORCH_ALIASES and instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            names.add(str(instruction.argval))
        if instruction.opname.startswith("LOAD_"):
            last = str(instruction.argval)
        elif instruction.opname not in ("CACHE", "PUSH_NULL"):
            last = ""
    return frozenset(names)
