"""Definitions of operators that the CPU has no kernel for: the references of the pre-check."""

from __future__ import annotations

from functools import cache
from typing import Any

ATEN = "aten"
SCOPES = {ATEN: "Aten", "npu": "NPU"}
"""Scopes of the names of references, by the namespaces of operators."""


@cache
def find_definition(namespace: str, name: str) -> Any:
    """Return the reference that a plugin has for an operator, such as ``NPU.npu_rms_norm``; else None."""
    scope = SCOPES.get(namespace)
    spec = None if scope is None else _load_specs().get(f"{scope}.{name}")
    return None if spec is None else spec.make()


@cache
def _load_specs() -> dict[str, Any]:
    from probe_pytorch.precheck.runner import reference_specs

    return reference_specs()
