"""Name of the answer that ``-da`` asks for, and the error of an option that excludes it."""

from __future__ import annotations

from probe_core.errors import UserError

NAME = "first_difference"
"""Name of the answer that ``-da`` asks for."""


def both_asked() -> UserError:
    """Return the error of ``-da`` beside ``--baseline``, which could contradict each other."""
    return UserError(
        "-da and --baseline exclude each other: the files of -da know nothing of a baseline.",
        "Leave one of them out.",
    )
