"""Operators that only compute, by what the registry of torch says of them.

A record comes from anyone, and names what is run. ``aten`` also holds operators that print, write files, set
seeds and modes, or hand out memory: none of these may be named.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch

from probe_pytorch.precheck.rules import rules

_BASES = frozenset({"Tensor", "int", "float", "bool", "complex", "number", "Device", "Generator"})
"""What an operator that computes may take, alone, optional or in lists: no storage, stream or object."""
_WRAPPED = re.compile(r"(?:Optional|List)\[(.*)\]")
_TAGS = ("core", "pointwise", "reduction", "nondeterministic_seeded")
"""Tags that torch gives to what computes."""


@cache
def is_pure(name: str) -> bool:
    """Return True if the operator ``aten::{name}``, in all its overloads, computes and does nothing else.

    An operator with a leading underscore is internal: it must bear a tag of what computes, or be listed.
    """
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket) or name.startswith(tuple(rules("not_pure"))):
        return False
    overloads = [
        getattr(packet, overload)
        for overload in packet.overloads()
        if _full_name(name, overload) in _registered()
    ]
    is_listed = name in rules("pure")
    if not overloads or not all(_only_computes(overload._schema, is_listed) for overload in overloads):
        return False
    tags = {tag.name for overload in overloads for tag in getattr(overload, "tags", ())}
    return is_listed or not name.startswith("_") or not tags.isdisjoint(_TAGS)


def _full_name(name: str, overload: str) -> str:
    return f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}"


@cache
def _registered() -> frozenset[str]:
    """Operators of the dispatcher; those that TorchScript alone knows are never recorded."""
    return frozenset(getattr(torch._C, "_dispatch_get_all_op_names", list)())


def _only_computes(schema: Any, may_return_nothing: bool) -> bool:
    if not schema.returns and not may_return_nothing:
        return False
    is_of_tensors = any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))
    return is_of_tensors and all(
        _base(str(one.type)) in _BASES or (_base(str(one.type)) == "str" and one.name in rules("choices"))
        for one in schema.arguments
    )


def _base(type_name: str) -> str:
    while found := _WRAPPED.fullmatch(type_name):
        type_name = found[1]
    return type_name
