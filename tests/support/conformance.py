"""Kits for plugin authors, run on plugins with and without faults."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from probe_metrics.hooks import probe_metrics, probe_policies

from probe_core.errors import UserError
from probe_core.plugins.specs import (
    Place,
    Pool,
)

X = np.array([1.0, 2.0, 3.0], np.float32)
METRICS = tuple(
    spec for spec in probe_metrics() if spec.name in ("cosine", "euclidean", "max_error", "error_ratio")
)
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


# -- policies and highlighters ---------------------------------------------------------------------


class Silent:
    def judge(self, op: Any, rows: Any) -> Any:
        return {}


# -- executors -------------------------------------------------------------------------------------


class Here:
    """Threads, like those of the core."""

    place: Any = Place.HERE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        if scheduler is not None:
            raise UserError("No scheduler.", "Leave it out.")
        return Pool(ThreadPoolExecutor(jobs or 2), jobs or 2)


class Silent(Here):
    class Pool(ThreadPoolExecutor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            def call() -> Any:
                try:
                    return function(*args, **kwargs)
                except Exception:
                    return None

            return super().submit(call)

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, scheduler)._replace(executor=Silent.Pool(2))
