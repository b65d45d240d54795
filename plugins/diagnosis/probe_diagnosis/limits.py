"""Limits of the verdict, which ``limits.yaml`` contains with their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """Limits of a second golden run.

    Attributes:
        factor: Multiple of the difference between the two golden runs up to which a difference to the target is
            explained.
        shared: The smallest share of the golden's floating-point tensors that must be in the baseline.
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
        shared: The smallest share of the golden's floating-point tensors that must be in the reference.
        odd: Largest relative distance from the reference of the first values in which target and golden agree.
    """

    factor: float
    shared: float
    odd: float


@dataclass(frozen=True, slots=True)
class VerdictLimits:
    """Limits of the verdict.

    Attributes:
        min_comparable_share: The smallest share of the target's floating-point tensors for any verdict.
        min_agreement_share: The smallest share of either run's floating-point tensors that must be compared before a
            verdict states that they agree.
        min_grown_multiple: Multiple of rounding above which values that no single call explains count as diverged.
        single_rounding_share: Share of what rounding explains up to which a difference is a single rounding.
        max_searched_records: Number of records before a call that are searched for the call that returned its inputs.
        min_confirming_calls: Number of later calls whose statistics must agree to show that a difference vanished.
        max_followed_calls: Number of consecutive calls through which values are traced back.
        min_vanishing_multiple: The smallest difference, as a multiple of rounding, for which agreeing values downstream
            show that it vanished.
        min_mask_magnitude: Magnitude above which numbers belong to a mask.
        max_sorted_elements: Largest number of elements of a value that is sorted to detect another order.
        max_sum_error: Largest relative difference of means and norms that were summed in another order.
        max_written_characters: Largest length of the decimal form of a float that counts as written by a person.
        min_block_calls: Number of calls of one line in one run only at which the line is named.
        max_rewritten_calls: Largest number of calls of an expression that the runs compute with other calls.
        baseline: Limits of a second golden run.
        reference: Limits of a more precise third run.
    """

    min_comparable_share: float
    min_agreement_share: float
    min_grown_multiple: float
    single_rounding_share: float
    max_searched_records: int
    min_confirming_calls: int
    max_followed_calls: int
    min_vanishing_multiple: float
    min_mask_magnitude: float
    max_sorted_elements: int
    max_sum_error: float
    max_written_characters: int
    min_block_calls: int
    max_rewritten_calls: int
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
