"""First stage of the pre-check: the status of one output, by the numbers of a single machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from probe_precheck.api import (
    Array,
    Message,
    Output,
    OutputVerdict,
    Status,
)
from probe_precheck.yardstick import create_rounding_message, measure

from probe_metrics.standards.binary_consistency import TOPK_API, TOPK_HINT, measure_error_rate
from probe_metrics.standards.closeness import measure_cosine, measure_extrema, measure_shares_below
from probe_metrics.standards.distribution import have_similar_distributions, have_similar_zeros
from probe_metrics.standards.elements import Elements, Flat
from probe_metrics.standards.thresholds import get_for_dtype, load_first_stage
from probe_metrics.standards.verdicts import convert_to_status

TYPE_DIFFERS = Message("bench and npu output type is different.")
NO_BENCH = Message("Bench output is None, skip this test.")
NO_ELEMENTS = Message("输出没有元素 (no elements)", "no elements")
INF_NAN_DIFFER = Message("inf/nan不一致 (inf/nan differ)", "inf/nan differ")
ONE_ELEMENT = Message(
    "All the data in device dump data is scalar. A single element has no direction: its cosine is left out."
)
ONE_SIDE_ZERO = Message("一侧的数据全为0，余弦相似度无意义", "One side is all zero: there is no cosine")
RANDOM = Message("随机数不逐元素比较", "Random numbers are not compared element by element")
RANDOM_DIFFERS = Message(
    "ERROR: 两侧随机数的分布不同（不逐元素比较）",
    "ERROR: the random numbers of both sides are distributed differently (they are not compared element by element)",
)
PLAIN_TYPES = (bool, int, float, str, complex)


RATIO_KEYS = frozenset(("hundredth", "thousandth", "ten_thousandth"))
"""Numbers of outputs that do not pass by their absolute error."""


class RoundingMessage(Message):
    """Message of an output on which the yardstick and the limits disagree."""


class FirstStage:
    """Status of one output, with the numbers that decide it.

    Outputs that differ in type, shape or class of dtype are errors. Integers and booleans must be equal.
    Floating point, for a device D and a benchmark B in float64, by the first rule that decides:

    1. cosine ``D·B / (‖D‖ ‖B‖)`` at most 0.99: error.
    2. largest ``|D - B|``, in the unit of the data, below 0.001: pass.
    3. share of the elements with ``|D - B| / (|B| + eps)`` below a limit: error if the larger limit's share
       is too small, warning if the smaller limit's is, else pass. The limits go by dtype.

    Floating point is measured with the yardstick as well (``probe_precheck.measure``), and ``judge_alone``
    returns its verdict where it is another: error for an output within the limits that is beyond rounding,
    warning for one that misses a limit by an error that rounding explains. If the runner cannot move inputs,
    this applies only to outputs that pass by rule 2.

    Edge cases:
        * nan or inf, the same on both sides: left out; else an error. All left out: pass.
        * Both sides zero (up to the eps of float64; -0.0 too): no cosine. One side zero: error.
        * 0-d and one element: no cosine, the other rules decide.
        * No elements, None or complex: SKIP. float64 is judged like float32.
        * Random numbers: compared by their distribution, a rule of probe's own; a dropout by its number of
          zeros.

    Source: docs/standards.md#status, by the pre-check guide of msprobe 1.0.4.
    """

    def __init__(self) -> None:
        self._limits = load_first_stage()

    def judge_alone(
        self, output: Output, standard: str, numbers: Mapping[str, float | int], direction: str
    ) -> OutputVerdict:
        """Return the yardstick's verdict where it is another: error, or warning for an explained error."""
        judged = output.once(self._judge)
        messages = tuple(text for text in judged.messages if isinstance(text, RoundingMessage))
        if not messages:
            return OutputVerdict(Status.SKIP)
        status = Status.WARNING if judged.status is Status.ERROR else Status.ERROR
        return OutputVerdict(status, messages=messages)

    def judge(self, output: Output) -> OutputVerdict:
        """Return the status of one output."""
        judged = output.once(self._judge)
        if judged.status is Status.ERROR and output.api == TOPK_API:
            return judged._replace(messages=(*judged.messages, TOPK_HINT))
        return judged

    def _judge(self, output: Output) -> OutputVerdict:
        bench, device = output.bench, output.device
        problem = judge_structure(output)
        if problem is not None:
            return problem
        if self._limits["dropout"]["word"] in output.api:
            return OutputVerdict(
                convert_to_status(have_similar_zeros(bench, device, self._limits["dropout"])), shown=False
            )
        if output.is_random:
            return judge_distribution(bench, device, self._limits["random"])
        kind = classify_dtype(bench)
        if kind == FLOAT:
            return self._measure_rounding(output)
        if output.api in self._limits["quantization"]["apis"]:
            return self._judge_quantized(output)
        rate = output.once(measure_error_rate)
        return OutputVerdict(convert_to_status(rate == 0), {"error_rate": rate}, (_create_error_rate_message(device),))

    def _judge_quantized(self, output: Output) -> OutputVerdict:
        """Return the verdict on a quantized output, whose integers may differ by 1 through rounding."""
        distance = _measure_largest_distance(output.device.values, output.bench.values)
        ok = distance <= self._limits["quantization"]["max_abs_error"]
        return OutputVerdict(convert_to_status(ok), {"max_abs_error": distance})

    def _measure_rounding(self, output: Output) -> OutputVerdict:
        """Return the verdict by the limits, with a message if the yardstick disagrees."""
        judged = self._judge_floats(output)
        is_small = judged.status is Status.PASS and not RATIO_KEYS & judged.numbers.keys()
        if INF_NAN_DIFFER in judged.messages or (output.moved is None and not is_small):
            return judged
        measured = output.once(measure)
        if measured.is_beyond == (judged.status is Status.ERROR):
            return judged
        return judged._replace(messages=(*judged.messages, RoundingMessage(*create_rounding_message(measured))))

    def _judge_floats(self, output: Output) -> OutputVerdict:
        elements, largest = output.once(Elements), output.once(measure_extrema)
        if largest.nonfinite_mismatches:
            return OutputVerdict(Status.ERROR, messages=(INF_NAN_DIFFER,))
        if not largest.size:
            return OutputVerdict(Status.PASS)
        numbers: dict[str, float | int] = {}
        messages: tuple[Message, ...] = ()
        has_device, has_bench = (side > self._limits["zero"] for side in (largest.device, largest.bench))
        if largest.size == 1:
            messages = (ONE_ELEMENT,)
        elif has_device != has_bench:
            return OutputVerdict(Status.ERROR, messages=(ONE_SIDE_ZERO,))
        elif has_device:
            numbers["cosine"] = measure_cosine(elements, largest)
            if not numbers["cosine"] > self._limits["cosine"]:
                return OutputVerdict(
                    Status.ERROR, numbers, (_create_cosine_message(self._limits["cosine"], largest.error),)
                )
        numbers["max_abs_error"] = largest.error
        if largest.error < elements.limit(self._limits["max_abs_error"]):
            return OutputVerdict(Status.PASS, numbers, messages)
        status, missed = self._judge_ratios(elements, numbers)
        return OutputVerdict(status, numbers, (*messages, *missed))

    def _judge_ratios(self, elements: Elements, numbers: dict[str, float | int]) -> tuple[Status, tuple[Message, ...]]:
        """Return error if the first share is too small, warning if the second is, else pass, with messages.

        The computed shares are added to ``numbers``.
        """
        keys = get_for_dtype(self._limits["ratios"], elements.kind)
        shares = measure_shares_below(elements, [self._limits[key] for key in keys])
        for key, share, missed in zip(keys, shares, (Status.ERROR, Status.WARNING)):
            numbers[key] = share
            if not share > 1 - self._limits[key]:
                return missed, (_create_ratio_message(self._limits[key]),)
        return Status.PASS, ()


FLOAT, INTEGER, BOOL, COMPLEX, OTHER = "float", "integer", "bool", "complex", "other"
"""Classes of dtypes; only outputs of one class are compared."""
CLASS_BY_NUMPY_KIND = {"f": FLOAT, "i": INTEGER, "u": INTEGER, "b": BOOL, "c": COMPLEX}
"""Classes by the kind that numpy gives a dtype."""


def classify_dtype(array: Array) -> str:
    """Return the class of an array's dtype; uint8 is in the class of bool, all other integers in one."""
    dtype = array.values.dtype
    return BOOL if dtype == np.uint8 else CLASS_BY_NUMPY_KIND.get(dtype.kind, OTHER)


def judge_structure(output: Output) -> OutputVerdict | None:
    """Return the verdict on an output whose type, shape or dtype decides; None for arrays to be measured."""
    bench, device = output.bench, output.device
    if type(bench) is not type(device):
        return OutputVerdict(Status.ERROR, messages=(TYPE_DIFFERS,))
    if bench is None:
        return OutputVerdict(Status.SKIP, messages=(NO_BENCH,))
    return _judge_arrays(bench, device) if isinstance(bench, Array) else _judge_value(output)


def judge_distribution(bench: Array, device: Array, limits: Mapping[str, Any]) -> OutputVerdict:
    """Return the verdict on random numbers, whose distributions are compared."""
    alike = have_similar_distributions(bench, device, limits)
    return OutputVerdict(convert_to_status(alike), messages=(RANDOM if alike else RANDOM_DIFFERS,))


def _judge_arrays(bench: Array, device: Array) -> OutputVerdict | None:
    """Return the verdict on two arrays that cannot be compared by their values; None if they can."""
    kind = classify_dtype(bench)
    if bench.values.shape != device.values.shape:
        shapes = f"{bench.values.shape}, {device.values.shape}"
        message = Message(f"bench与npu输出的shape不同: {shapes}", f"bench and npu output shape differ: {shapes}")
        return OutputVerdict(Status.ERROR, messages=(message,))
    if classify_dtype(device) != kind:
        message = Message(f"bench {bench.dtype}, npu {device.dtype}: cannot compare.")
        return OutputVerdict(Status.ERROR, messages=(message,))
    if kind in (COMPLEX, OTHER):
        return OutputVerdict(Status.SKIP, messages=(Message(f"{device.dtype}: not supported"),))
    if not bench.values.size:
        return OutputVerdict(Status.SKIP, messages=(NO_ELEMENTS,))
    return None


def _create_cosine_message(limit: float, error: float) -> Message:
    return Message(
        f"余弦相似度不大于{limit}，最大绝对误差为{error:.3g}。",
        f"The cosine is not above {limit}; the max abs error is {error:.3g}.",
    )


def _create_ratio_message(limit: float) -> Message:
    return Message(
        f"相对误差小于{limit}的元素占比不大于{1 - limit}。",
        f"The share of relative errors below {limit} is not above {1 - limit}.",
    )


def _create_error_rate_message(array: Array) -> Message:
    return Message(
        f"{array.dtype}类型的数据仅以二进制一致错误率判定", f"{array.dtype} is judged by its error rate only"
    )


def _judge_value(output: Output) -> OutputVerdict:
    """Return pass if two plain values are equal, or random; nan equals nan."""
    bench, device = output.bench, output.device
    if not isinstance(bench, PLAIN_TYPES):
        return OutputVerdict(Status.SKIP, messages=(Message(f"{type(bench).__name__}: not supported"),))
    if output.is_random:
        return OutputVerdict(Status.PASS, messages=(RANDOM,))
    equal = bench == device or (bench != bench and device != device)
    return OutputVerdict(convert_to_status(equal), {"error_rate": 0 if equal else 1})


def _measure_largest_distance(first: Flat, second: Flat) -> int:
    """Return the largest difference of two arrays of integers, without overflow."""
    common: Any = np.uint64 if np.uint64 in (first.dtype, second.dtype) else np.int64
    first, second = first.astype(common), second.astype(common)
    distances: Flat = np.where(first > second, first - second, second - first)  # modulo 2^64
    return int(distances.view(np.uint64).max())
