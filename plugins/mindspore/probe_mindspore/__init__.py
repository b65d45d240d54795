"""probe for MindSpore: records runs, and reads and checks them; to read, mindspore is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe_mindspore.debugger import PrecisionDebugger

__all__ = ["PrecisionDebugger"]


def __getattr__(name: str) -> Any:
    """What needs mindspore is imported when it is asked for."""
    if name != "PrecisionDebugger":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import mindspore  # noqa: F401
    except ImportError as error:
        if error.name != "mindspore":
            raise
        raise ImportError(
            "To record MindSpore programs, mindspore must be installed: pip install mindspore.",
            name="mindspore",
        ) from None
    from probe_mindspore.debugger import PrecisionDebugger

    return PrecisionDebugger
