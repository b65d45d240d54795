"""probe for PyTorch: records runs, and reads them without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probe_pytorch.compare import compare, compare_distributed

if TYPE_CHECKING:
    from probe_pytorch.debugger import PrecisionDebugger
    from probe_pytorch.seeds import seed_all

__all__ = ["PrecisionDebugger", "compare", "compare_distributed", "seed_all"]

_NEED_TORCH = {"PrecisionDebugger": "probe_pytorch.debugger", "seed_all": "probe_pytorch.seeds"}


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_NEED_TORCH[name]), name)
