"""Limits of the verdict, which ``limits.yaml`` contains with their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """Limits of a second golden run.

    Attributes:
        factor: Multiple of the difference between both golden runs that it explains.
        shared: Least share of the golden's floating-point tensors that must be in the baseline.
        introduced: Largest relative difference that a call of the baseline may introduce or receive.
    """

    factor: float
    shared: float
    introduced: float


@dataclass(frozen=True, slots=True)
class ReferenceLimits:
    """Limits of a more precise third run.

    Attributes:
        factor: Multiple of the golden's distance from the reference up to which the target is excused.
        shared: Least share of the golden's floating-point tensors that must be in the reference.
        odd: Largest relative distance from the reference of a value in which target and golden agree.
    """

    factor: float
    shared: float
    odd: float


@dataclass(frozen=True, slots=True)
class VerdictLimits:
    """Limits of the verdict.

    Attributes:
        comparable: Least share of the target's floating-point tensors for any verdict.
        enough: Least share of either run's floating-point tensors that a verdict that they agree needs.
        grown: Multiple of rounding at which values that no single call explains count as diverged.
        searched: Number of records before a call that are searched for a producer.
        confirming: Number of later calls whose statistics must agree to show that a difference has gone.
        followed: Number of calls, one behind the other, through which values are followed back.
        gone: Least multiple of rounding of a difference that what agrees behind it shows to have gone.
        masking: Magnitude at which numbers are those of a mask.
        sorted: Largest number of elements of a value that is sorted.
        same_sums: Largest relative difference of means and norms that were summed in another order.
        written: Largest length of the decimal form of a float that counts as written by a person.
        block: Number of calls of one line in one run only at which the line is named.
        baseline: Limits of a second golden run.
        reference: Limits of a more precise third run.
    """

    comparable: float
    enough: float
    grown: float
    searched: int
    confirming: int
    followed: int
    gone: float
    masking: float
    sorted: int
    same_sums: float
    written: int
    block: int
    baseline: BaselineLimits
    reference: ReferenceLimits


@cache
def limits() -> VerdictLimits:
    """Return the limits."""
    content = load_yaml(__package__, "limits.yaml")
    runs = {
        "baseline": BaselineLimits(**content["baseline"]),
        "reference": ReferenceLimits(**content["reference"]),
    }
    return VerdictLimits(**{**content, **runs})
