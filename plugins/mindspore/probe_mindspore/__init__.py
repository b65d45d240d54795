"""MindSpore for probe: records, reads and checks runs; reading does not import mindspore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe_mindspore.debugger import PrecisionDebugger

__all__ = ["PrecisionDebugger"]


def __getattr__(name: str) -> Any:
    """Import ``PrecisionDebugger``, which needs mindspore, when it is first used."""
    if name != "PrecisionDebugger":
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
    from probe_mindspore.debugger import PrecisionDebugger

    return PrecisionDebugger
