"""Recorders in forked children, where the run belongs to the parent process."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkedRecorder(Protocol):
    """A recorder that a fork copies.

    Attributes:
        reports_missing: True to print at the end what was not recorded.
    """

    reports_missing: bool

    def abandon(self) -> None:
        """Stop recording without writing anything."""


def abandon_in_children(recorder: ForkedRecorder) -> None:
    """Let each forked child of this process abandon its copy of a recorder."""
    if hasattr(os, "register_at_fork"):
        reference = weakref.ref(recorder)
        os.register_at_fork(after_in_child=lambda: _abandon(reference()))


def _abandon(recorder: ForkedRecorder | None) -> None:
    if recorder is not None:
        recorder.reports_missing = False
        recorder.abandon()
