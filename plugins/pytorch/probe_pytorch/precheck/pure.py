"""Recognition of operators that only compute, from torch's registry.

A record may come from a stranger, and it names the function to run. ``aten`` also has operators that print,
write files, set seeds and modes, or expose memory; records must not name these.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch

from probe_pytorch.precheck.rules import rules

_ARGUMENT_TYPES = frozenset({"Tensor", "int", "float", "bool", "complex", "number", "Device", "Generator"})
"""The types of arguments, also optional or in lists, of operators that compute: no storage or stream."""
_WRAPPED_TYPE = re.compile(r"(?:Optional|List)\[(.*)\]")
_COMPUTING_TAGS = ("core", "pointwise", "reduction", "nondeterministic_seeded")
"""The tags that torch gives to operators that compute."""


@cache
def is_pure(name: str) -> bool:
    """Return True if all overloads of the operator ``aten::{name}`` compute and do nothing else.

    An operator with a leading underscore is internal and must in addition have one of ``_COMPUTING_TAGS`` or be listed.
    """
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket) or name.startswith(tuple(rules("not_pure"))):
        return False
    overloads = [
        getattr(packet, overload)
        for overload in packet.overloads()
        if _format_full_name(name, overload) in _list_registered_operators()
    ]
    is_listed = name in rules("pure")
    if not overloads or not all(_is_pure_schema(overload._schema, is_listed) for overload in overloads):
        return False
    tags = {tag.name for overload in overloads for tag in getattr(overload, "tags", ())}
    return is_listed or not name.startswith("_") or not tags.isdisjoint(_COMPUTING_TAGS)


def _format_full_name(name: str, overload: str) -> str:
    return f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}"


@cache
def _list_registered_operators() -> frozenset[str]:
    """Return the operators of the dispatcher, without those of TorchScript, which are never recorded."""
    return frozenset(getattr(torch._C, "_dispatch_get_all_op_names", list)())


def _is_pure_schema(schema: Any, may_return_nothing: bool) -> bool:
    if not schema.returns and not may_return_nothing:
        return False
    is_of_tensors = any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns))
    texts = (*rules("choices"), *rules("dimensions"))
    return is_of_tensors and all(
        _find_base_type(str(part.type)) in _ARGUMENT_TYPES
        or (_find_base_type(str(part.type)) == "str" and part.name in texts)
        for part in schema.arguments
    )


def _find_base_type(type_name: str) -> str:
    while wrapped := _WRAPPED_TYPE.fullmatch(type_name):
        type_name = wrapped[1]
    return type_name
