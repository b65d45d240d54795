"""Measurements of the older tools, in float64, and in the texts of their tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from probe_legacy.compare.table_texts import get_message, get_table_entry

Array = np.ndarray[Any, Any]
EPSILON = float(np.finfo(float).eps)


def measure_ptdbg(npu: Array, bench: Array) -> tuple[object, object, str]:
    """Return Cosine, MaxAbsErr and a message of ptdbg_ascend 2.3.

    NaN or one side of zeros has no Cosine; two sides of zeros have 1.0. NaN makes MaxAbsErr nan. Numbers and
    tensors without elements have a Cosine by definition. Arrays of other shapes are not measured.
    """
    if npu.ndim == bench.ndim == 0:
        is_same = npu.dtype != np.bool_ or bool(npu == bench)
        return int(is_same), _compute_difference(npu.astype(float), bench.astype(float)), get_message("number")
    if not npu.size:
        return 1, 0, get_message("empty")
    if npu.shape != bench.shape:
        return get_message("shapes"), get_message("shapes"), get_message("shapes_said")
    npu_values, bench_values = npu.reshape(-1).astype(float), bench.reshape(-1).astype(float)
    cosine, note = _compute_cosine(npu_values, bench_values)
    return cosine, _compute_difference(npu_values, bench_values), note


def _compute_cosine(npu: Array, bench: Array) -> tuple[str, str]:
    if len(npu) == 1:
        return f"{1.0:.6f}", get_message("one_value")
    with np.errstate(all="ignore"):
        product = npu.dot(bench)
        norm, norm_of_bench = np.linalg.norm(npu), np.linalg.norm(bench)
        if norm <= EPSILON and norm_of_bench <= EPSILON:
            return "1.0", ""
        if norm <= EPSILON or norm_of_bench <= EPSILON:
            return get_message("not_available"), get_message("npu_zero" if norm <= EPSILON else "bench_zero")
        cosine = product / (norm * norm_of_bench)
    if np.isnan(cosine):
        return get_message("not_available"), get_message("nan")
    text = f"{cosine:.6f}"
    return ("1.0" if float(text) > get_table_entry("ptdbg", "one_from") else text), ""


def _compute_difference(npu: Array, bench: Array) -> str:
    with np.errstate(all="ignore"):
        return f"{np.max(np.abs(npu - bench)):.6f}"


def judge_ptdbg(cosine: object, difference: object) -> str:
    """Return the verdict of ptdbg_ascend 2.3 on a row, from the cells of Cosine and MaxAbsErr."""
    missing, shapes = get_message("not_available"), get_message("shapes")
    if missing in (cosine, difference):
        return missing
    if shapes in (cosine, difference):
        return get_message("shapes_verdict")
    far = float(str(difference)) > get_table_entry("ptdbg", "most_difference")
    return "No" if far and float(str(cosine)) < get_table_entry("ptdbg", "least_cosine") else "Yes"


def measure_hooks(npu: Array, bench: Array) -> tuple[object, object, object]:
    """Return Cosine, RMSE and MAPE of torch_npu.hooks; Cosine is the plain one, which its guide states.

    Cosine is nan for zeros, NaN and infinities; RMSE is empty where it is NaN; MAPE is in percent, inf for a
    zero of the bench that the NPU does not have.
    """
    if npu.shape != bench.shape:
        no = get_message("not_calculated")
        return f"{no} ", no, no
    npu_values, bench_values = npu.reshape(-1).astype(float), bench.reshape(-1).astype(float)
    if not len(npu_values):
        return "nan", "", "nan%"
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(npu_values) * np.linalg.norm(bench_values)
        cosine = float(npu_values.dot(bench_values) / norms) if norms else float("nan")
        rmse = float(np.linalg.norm(npu_values - bench_values) / np.sqrt(len(npu_values)))
        mape = float(np.sum(np.abs((npu_values - bench_values) / bench_values)) / len(bench_values) * 100)
    return str(cosine), "" if np.isnan(rmse) else rmse, f"{round(mape, 4)}%"
