"""Exit codes that ``git bisect run`` understands (docs/workflow.md#exit-codes)."""

from __future__ import annotations

from enum import IntEnum

from probe_core.model.answers import Outcome


class CheckCode(IntEnum):
    """Exit codes of a check.

    git takes 0 for good, 125 for a commit to skip, every other code up to 127 for bad, and stops at larger ones.
    """

    AGREE = 0
    DIVERGED = 1
    UNDECIDED = 125
    INTERRUPTED = 130
    USER_ERROR = 202
    INCOMPLETE = 203
    DEFECT = 207


OUTCOME_CODES = {
    Outcome.AGREE: CheckCode.AGREE,
    Outcome.DIVERGED: CheckCode.DIVERGED,
    Outcome.NOT_COMPARABLE: CheckCode.UNDECIDED,
    Outcome.CANNOT_TELL: CheckCode.UNDECIDED,
}
"""The exit code of each verdict."""
