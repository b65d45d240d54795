"""MindSpore for probe: records, reads and checks runs; reading does not import mindspore."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe_mindspore.callbacks import MsprobeInitStep, MsprobeStep
    from probe_mindspore.debugger import PrecisionDebugger
    from probe_mindspore.keeping.watch import watch
    from probe_mindspore.recorded_block import record
    from probe_mindspore.seeds import seed_all

__all__ = ["MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "record", "seed_all", "watch"]

_MODULES = {
    "MsprobeInitStep": "probe_mindspore.callbacks",
    "MsprobeStep": "probe_mindspore.callbacks",
    "PrecisionDebugger": "probe_mindspore.debugger",
    "record": "probe_mindspore.recorded_block",
    "seed_all": "probe_mindspore.seeds",
    "watch": "probe_mindspore.keeping.watch",
}


def __getattr__(name: str) -> Any:
    """Import a name of the interface, which needs mindspore, when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import mindspore  # noqa: F401
    except ImportError as error:
        if error.name != "mindspore":
            raise
        raise ImportError(
            "The package mindspore, which recording MindSpore programs needs, is not installed. "
            "Install it with: pip install mindspore",
            name="mindspore",
        ) from None
    return getattr(import_module(_MODULES[name]), name)
