"""Output formats of probe (xlsx, csv, jsonl, parquet), tables, names of result files, and the merging of results.

Plugins of other distributions import the names of ``probe_reporters.api``, and nothing else of
this package: its modules may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_reporters import api

if TYPE_CHECKING:
    from probe_reporters.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(
    __name__,
    {"api": " ".join(api.__all__)},
)
