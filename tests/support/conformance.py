"""Kits for plugin authors, run on plugins with and without faults."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
from probe_metrics.hooks import probe_metrics, probe_policies

X = np.array([1.0, 2.0, 3.0], np.float32)
METRICS = tuple(spec for spec in probe_metrics() if spec.name in ("cosine", "euclidean", "max_error", "error_ratio"))
TENSOR_POLICIES = [spec for spec in probe_policies() if spec.name in ("accuracy", "first_difference")]


def failing(kit: type[Any], directory: Path, **fields: Any) -> set[str]:
    """The names of the checks of a kit that fail."""
    found = set()
    for name in (name for name in dir(kit) if name.startswith("test_")):
        own = directory / name
        own.mkdir(parents=True)
        check = getattr(type("Conformance", (kit,), fields)(), name)
        try:
            check(**({"tmp_path": own} if "tmp_path" in inspect.signature(check).parameters else {}))
        except Exception:
            found.add(name.removeprefix("test_"))
    return found
