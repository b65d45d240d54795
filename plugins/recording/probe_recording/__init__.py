"""The recording kit: parts shared by the recorders of all frameworks, and the reader of run directories.

Plugins of other distributions import the names of ``probe_recording.api``, and nothing else of
this package: its modules may change between releases. Plugins that are released with the kit may import
further modules (docs/internals.md#the-recording-kit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_recording import api

if TYPE_CHECKING:
    from probe_recording.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(__name__, {"api": " ".join(api.__all__)})
