"""Tools that check what surrounds a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import exporter

if TYPE_CHECKING:
    from probe_check.checkpoint.comparison import compare_checkpoints

__all__ = ["compare_checkpoints"]

__getattr__ = exporter(__name__, {"checkpoint.comparison": "compare_checkpoints"})
