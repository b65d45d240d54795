"""The numbers of the pre-check, element by element, in plain Python: pre-check guide 7 to 9 and its decisions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}
LARGEST = {"float32": 3.4028234663852886e38, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}
ULP = {"float16": (-14, 10, 1), "bfloat16": (-126, 7, 1), "float32": (-126, 23, 32)}
ABSOLUTE = {
    "seed": {"float32": (1e-6, 1e-6, 1e-9), "float16": (1e-3, 1e-3, 1e-5), "bfloat16": (4e-3, 1e-3, 1e-5)},
    "8.3": {
        "float32": (2.0**-20, 2.0**-20, 2.0**-30),
        "float16": (2.0**-10, 2.0**-10, 2.0**-16),
        "bfloat16": (2.0**-8, 2.0**-10, 1e-16),
    },
}
SMALL = {
    "seed": {"float32": (1e-6, 1e-9), "float16": (1e-3, 1e-5), "bfloat16": (1e-3, 1e-5)},
    "8.3": {"float32": (2.0**-20, 2.0**-30), "float16": (2.0**-10, 1e-16), "bfloat16": (2.0**-10, 1e-16)},
}
ACCUMULATIVE = {"float16": 2.0**-8, "bfloat16": 2.0**-7, "float32": 2.0**-11}


class Pair(NamedTuple):
    """One element of both sides; ``cast`` is the bench in the device's numpy dtype."""

    device: float
    bench: float
    cast: float

    @property
    def error(self) -> float:
        return abs(self.device - self.bench)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.device) and math.isfinite(self.cast)


class Reference:
    """An output: the device's array with its dtype's name, and the benchmark's."""

    def __init__(self, device: Array, kind: str, bench: Array) -> None:
        self.kind = kind
        with np.errstate(all="ignore"):
            if kind == "bfloat16":
                bench = bench.astype(np.float32)
            cast = bench.astype(device.dtype)
        self.bench_type = bench.dtype
        self.eps = 2.0**-8 if kind == "bfloat16" else EPS[bench.dtype.name]
        self.pairs = [Pair(*map(float, p)) for p in zip(device.ravel(), bench.ravel(), cast.ravel())]

    def limit(self, value: float) -> float:
        with np.errstate(all="ignore"):
            return float(self.bench_type.type(value))

    def relative(self, pair: Pair) -> float:
        return pair.error / (abs(pair.bench) + self.eps)

    def rounded(self, value: float) -> float:
        """``value`` in the device's own dtype."""
        dtype: Any = ml_dtypes.bfloat16 if self.kind == "bfloat16" else np.dtype(self.kind).type
        with np.errstate(all="ignore"):
            return float(dtype(value))

    # 9.3

    def rates(self, rtol: float, small_value: float, atol: float) -> dict[str, float]:
        rtol, small_value, atol = map(self.limit, (rtol, small_value, atol))
        special = [p for p in self.pairs if not p.finite]
        small = [p for p in self.pairs if p.finite and abs(p.bench) <= small_value]
        normal = [p for p in self.pairs if p.finite and abs(p.bench) > small_value]
        return {
            "inf_nan_error_rate": part(not self.consistent(p, rtol) for p in special),
            "relative_error_rate": part(self.relative(p) > rtol for p in normal),
            "absolute_error_rate": part(p.error > atol for p in small),
        }

    def consistent(self, pair: Pair, rtol: float) -> bool:
        """Return True if both are nan, the same inf, or as close as the limit."""
        if math.isnan(pair.device) or math.isnan(pair.bench):
            return math.isnan(pair.device) and math.isnan(pair.bench)
        top = LARGEST[self.kind]
        device = max(-top, min(top, pair.device))
        bench = max(-top, min(top, pair.cast))
        return abs(device - bench) / (abs(bench) + self.eps) <= rtol

    def absolute(self, release: str) -> dict[str, float]:
        return self.rates(*ABSOLUTE[release][self.kind])

    def accumulative(self) -> dict[str, float]:
        bound = ACCUMULATIVE[self.kind]
        return {**self.rates(bound, 1, bound), "error_balance": self.balance()}

    # 9.4

    def balance(self) -> float:
        signs = [(p.device > p.cast) - (p.device < p.cast) for p in self.pairs]
        return abs(sum(signs)) / len(signs) if signs else 0.0

    def benchmark(self, release: str) -> dict[str, float]:
        small_value, atol = map(self.limit, SMALL[release][self.kind])
        small = [p for p in self.pairs if p.finite and abs(p.bench) <= small_value]
        normal = [p for p in self.pairs if p.finite and abs(p.bench) > small_value]
        size, masked = len(self.pairs), len(self.pairs) - len(normal)
        square = math.fsum(p.error**2 for p in normal) / size if size else 0.0
        square *= size / (size - masked + 1e-4) + 1e-4
        relative = [self.relative(p) for p in normal]
        found = {
            "small_value_error_share": part(p.error > atol for p in small),
            "rmse": math.sqrt(square),
            "error_balance": self.balance(),
            "max_relative_error": max(relative, default=0.0),
            "mean_relative_error": math.fsum(relative) / len(relative) if relative else 0.0,
        }
        if not all(p.finite for p in self.pairs):
            found["inf_nan_error_rate"] = self.absolute(release)["inf_nan_error_rate"]
        return found

    # 9.7

    def ulp(self) -> dict[str, float]:
        limit = ULP[self.kind][2]
        ulps = [self.ulp_of(p) for p in self.pairs]
        finite = all(isinstance(u, Fraction) for u in ulps)
        total: Any = sum(ulps) if finite else math.fsum(map(float, ulps))
        unknown = any(u != u for u in ulps)
        return {
            "ulp_max": math.nan if unknown else float(max(ulps, default=0.0)),
            "ulp_mean": float(total / len(ulps)) if ulps else 0.0,
            "ulp_share": part(u > limit for u in ulps),
        }

    def ulp_of(self, pair: Pair) -> Fraction | float:
        lowest, bits, _ = ULP[self.kind]
        if math.isnan(pair.device) or math.isnan(pair.bench):
            return math.nan
        if math.isinf(pair.device) and pair.device == self.rounded(pair.bench):
            return Fraction(0)
        if math.isinf(pair.device) or math.isinf(pair.bench):
            return math.inf
        exponent = math.frexp(pair.bench)[1] - 1 if pair.bench else 0
        return Fraction(pair.error) * Fraction(2) ** (bits - max(exponent, lowest))  # in float64

    # 7

    def left(self) -> list[Pair] | None:
        """Elements that A8 does not leave out; None if inf and nan are not alike."""
        kept = []
        for p in self.pairs:
            if math.isfinite(p.device) and math.isfinite(p.bench):
                kept.append(p)
            elif not (math.isnan(p.device) and math.isnan(p.bench)):
                own = p.bench if self.kind == "float64" else self.rounded(p.bench)
                if not (math.isinf(p.device) and p.device == own):
                    return None
        return kept

    def below(self, limit: float) -> float:
        """The share of relative errors below the limit; what is inf or nan and not alike is not."""
        bound, found = self.limit(limit), []
        for p in self.pairs:
            if math.isfinite(p.device) and math.isfinite(p.bench):
                found.append(self.relative(p) < bound)
            elif Reference.left(_one(self, p)) is None:
                found.append(False)
        return part(found) if found else 1.0

    def cosine(self, kept: list[Pair]) -> float:
        ours, theirs = ([Fraction(one) for one in side] for side in list(zip(*kept))[:2])
        dot = sum(a * b for a, b in zip(ours, theirs))
        squares = sum(a * a for a in ours) * sum(b * b for b in theirs)
        return root(dot * dot / squares) * (1 if dot >= 0 else -1)

    def first_stage(self) -> tuple[str, dict[str, float]]:
        kept = self.left()
        if kept is None:
            return "error", {}
        if not kept:
            return "pass", {}
        numbers: dict[str, float] = {}
        ours, theirs = max(abs(p.device) for p in kept), max(abs(p.bench) for p in kept)
        if len(kept) > 1:
            zeros = (ours <= 2.0**-52) + (theirs <= 2.0**-52)
            if zeros == 1:
                return "error", {}
            if not zeros:
                numbers["cosine"] = self.cosine(kept)
                if numbers["cosine"] <= 0.99:
                    return "error", numbers
        numbers["max_abs_error"] = max(p.error for p in kept)
        if numbers["max_abs_error"] < self.limit(0.001):
            return "pass", numbers
        steps = [("hundredth", 0.01), ("thousandth", 0.001), ("ten_thousandth", 0.0001)]
        steps = steps[1:] if self.kind in ("float32", "float64") else steps[:2]
        for (key, limit), missed in zip(steps, ("error", "warning")):
            numbers[key] = self.below(limit)
            if not numbers[key] > 1 - limit:
                return missed, numbers
        return "pass", numbers


def _one(reference: Reference, pair: Pair) -> Reference:
    single = object.__new__(Reference)
    single.__dict__.update(reference.__dict__, pairs=[pair])
    return single


def part(flags: Any) -> float:
    """The share of true flags; 0 of none."""
    found = list(flags)
    return sum(found) / len(found) if found else 0.0


def root(square: Fraction) -> float:
    """The square root of a fraction, to float64's precision."""
    scale = 1 << 140
    return math.isqrt(int(square * scale * scale)) / scale


def unequal(device: Array, bench: Array) -> float:
    """The binary error rate (9.6, B1)."""
    pairs = zip(device.ravel().tolist(), bench.ravel().tolist())
    return part(not (a == b or (a != a and b != b)) for a, b in pairs)
