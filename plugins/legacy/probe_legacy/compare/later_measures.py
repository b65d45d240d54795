"""Measurements of ptdbg_ascend 3.0 to 6.0, in the texts and numbers of their tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from probe_legacy.compare.dump import Release
from probe_legacy.compare.measures import EPSILON, Array
from probe_legacy.compare.words import message, word


class Measured(NamedTuple):
    """The measurements of two tensors.

    Attributes:
        cosine: The cosine of the angle between them.
        difference: The largest absolute difference.
        relative: The largest relative difference.
        within_thousandth: The share of values whose relative difference is below 0.001.
        within_five: The share of values whose relative difference is below 0.005.
        said: The message.
    """

    cosine: object
    difference: object
    relative: object
    within_thousandth: object
    within_five: object
    said: str


def all_of(text: str, said: str) -> Measured:
    """Return measurements that are all the same text."""
    return Measured(text, text, text, text, text, said)


def measure_later(npu: Array, bench: Array, release: Release) -> Measured:
    """Return the measurements of two tensors.

    Zeros of the bench are replaced by the smallest relative step of their dtype, and the values of the NPU
    in the same places are increased by it, for the relative difference divides by the bench. Infinities and
    NaN in the same places of both count as zeros, except in the relative difference.
    """
    if npu.shape != bench.shape:
        return all_of(message("shapes"), message("shapes_said"))
    if not npu.size:
        return Measured(message("unsupported"), 0, 0, 0, 0, message("empty"))
    is_zero = not npu.any(), not bench.any()
    with np.errstate(all="ignore"):
        npu, bench = _raised(npu, bench)
        relative = np.abs((npu - bench) / bench)
        if npu.ndim == 0:
            largest = _text(np.max(np.abs(npu - bench)), release)
            missing = message("not_available")
            return Measured(
                message("unsupported"), largest, _largest(relative, release)[0], missing, missing,
                message("number"),
            )  # fmt: skip
        one, two = npu.reshape(-1).astype(float), bench.reshape(-1).astype(float)
        if not _is_alike(one, two):
            return all_of(message("not_comparable"), message("other_places"))
        one, two = (np.where(np.isfinite(values), values, 0.0) for values in (one, two))
        cosine, of_cosine = _cosine(one, two, is_zero, release)
        largest, said = _largest(relative, release)
        first, second = (np.sum(relative < limit) / relative.size for limit in word("later", "within"))
        shares = _text(first, release), _text(second, release)
        difference = _text(np.max(np.abs(one - two)), release)
    return Measured(cosine, difference, largest, shares[0], shares[1], said or of_cosine)


def _raised(npu: Array, bench: Array) -> tuple[Array, Array]:
    """Return both tensors as floating-point numbers, without zeros in the bench."""
    if bench.dtype.kind != "f":
        npu, bench = npu.astype(float), bench.astype(float)
    elif npu.dtype.kind != "f":
        npu = npu.astype(float)
    step = np.finfo(bench.dtype).eps
    zero = bench == 0
    return np.where(zero, npu + step, npu).astype(npu.dtype), np.where(zero, step, bench).astype(bench.dtype)


def _is_alike(npu: Array, bench: Array) -> bool:
    """Return True if both hold NaN and the same infinities in the same places."""
    special = ~np.isfinite(npu)
    if not np.array_equal(special, ~np.isfinite(bench)):
        return False
    return np.array_equal(npu[special], bench[special], equal_nan=True)


def _cosine(npu: Array, bench: Array, is_zero: tuple[bool, bool], release: Release) -> tuple[object, str]:
    if len(npu) == 1:
        return message("unsupported"), ""
    whole = _text(1.0, release) if release >= Release.V6 else "1.0"
    norm, norm_of_bench = np.linalg.norm(npu), np.linalg.norm(bench)
    if is_zero == (True, True) or (norm <= EPSILON and norm_of_bench <= EPSILON):
        return whole, ""
    if is_zero[0] or norm <= EPSILON:
        return message("not_available"), message("npu_zero")
    if is_zero[1] or norm_of_bench <= EPSILON:
        return message("not_available"), message("bench_zero")
    text = _text(npu.dot(bench) / (norm * norm_of_bench), release)
    return (whole if float(str(text)) > word("ptdbg", "one_from") else text), ""


def _largest(relative: Array, release: Release) -> tuple[object, str]:
    largest = np.max(relative)
    if np.isnan(largest):
        return message("not_available"), message("nan_relative")
    return _text(largest, release), ""


def _text(number: Any, release: Release) -> object:
    """Return a number as a cell: a text of 6 or 12 decimals, in 6.0 a number of 12."""
    text = f"{number:.{word('later', 'decimals')[release.value]}f}"
    return float(text) if release >= Release.V6 else text


def accuracy_later(cosine: object, difference: object) -> str:
    """Return the verdict on a row, from the cells of Cosine and MaxAbsErr."""
    missing = message("not_available")
    if cosine == message("shapes"):
        return message("shapes_verdict")
    if missing in (cosine, difference):
        return missing
    if message("not_comparable") in (cosine, difference):
        return "No"
    if cosine == message("unsupported"):
        return missing
    near, far = float(str(cosine)), float(str(difference))
    if near < word("ptdbg", "least_cosine") and far > word("ptdbg", "most_difference"):
        return "No"
    is_far = near < word("later", "least_cosine") or far > word("later", "most_difference")
    return "No" if is_far else "Yes"
