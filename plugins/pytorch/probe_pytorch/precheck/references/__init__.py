"""References of the NPU's fused operators in higher precision (docs/standards.md#fused-operators).

``operators.yaml`` lists them with the addresses of their definitions. Reading it needs no torch, which is
imported with the first definition that is loaded.
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Any

import yaml
from probe_precheck.api import ReferenceSpec

from probe_core.plugins.specs import import_address
from probe_pytorch.precheck.references.operator import FusedOperator

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_reference_specs() -> list[ReferenceSpec]:
    """Return a spec for each fused operator in the list, whose ``make`` returns a ``FusedOperator``."""
    return [
        ReferenceSpec(
            name=name,
            summary=entry["summary"],
            factory=partial(_make_fused_operator, name, entry),
            api=f"NPU.{name}",
            framework="pytorch",
        )
        for name, entry in _read_operators().items()
    ]


def _read_operators() -> dict[str, dict[str, Any]]:
    text = files(__package__).joinpath("operators.yaml").read_text("utf-8")
    listed: dict[str, dict[str, Any]] = yaml.load(text, _LOADER)
    return listed


def _make_fused_operator(name: str, entry: dict[str, Any]) -> FusedOperator:
    compared = entry.get("compare_outputs")
    return FusedOperator(
        name,
        import_address(entry["definition"]),
        grad_output=entry.get("grad_output"),
        compare_outputs=None if compared is None else tuple(compared),
    )
