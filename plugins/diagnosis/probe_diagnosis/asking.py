"""Name of the answer that ``-da`` asks for, and the error of an option that excludes it."""

from __future__ import annotations

from probe_core.errors import UserError

NAME = "first_difference"
"""Name of the answer that ``-da`` asks for."""


def create_conflict_error(option: str) -> UserError:
    """Return the error for ``-da`` together with an option that names a third run: they could contradict each other."""
    return UserError(
        f"-da and {option} exclude each other: the files of -da do not consider a third run.",
        "Leave one of them out.",
    )
