"""The PyTorch plugin of probe: recording, reading and pre-checking of PyTorch runs.

Reading and comparing runs never imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probe_pytorch.compare import compare, compare_distributed

if TYPE_CHECKING:
    from probe_pytorch.debugger import PrecisionDebugger, module_dump, module_dump_end
    from probe_pytorch.dispatch_check.check import DispatchCheck
    from probe_pytorch.keeping.watch import Watch, watch
    from probe_pytorch.recorded_block import record
    from probe_pytorch.seeds import seed_all

__all__ = [
    "DispatchCheck",
    "PrecisionDebugger",
    "Watch",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "record",
    "seed_all",
    "watch",
]

_TORCH_NAMES = {
    "DispatchCheck": "probe_pytorch.dispatch_check.check",
    "PrecisionDebugger": "probe_pytorch.debugger",
    "Watch": "probe_pytorch.keeping.watch",
    "module_dump": "probe_pytorch.debugger",
    "module_dump_end": "probe_pytorch.debugger",
    "record": "probe_pytorch.recorded_block",
    "seed_all": "probe_pytorch.seeds",
    "watch": "probe_pytorch.keeping.watch",
}


def __getattr__(name: str) -> Any:
    """Import the names that need torch on first use."""
    if name not in _TORCH_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_TORCH_NAMES[name]), name)
