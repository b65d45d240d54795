"""Whether two values differ beyond what rounding explains, by the best evidence on record."""

from __future__ import annotations

import math

from probe_core.model import Drift, Kind, Level, Measurements, Reason, Value, Verdict
from probe_core.model.dtypes import same
from probe_core.model.measure import OpenPair
from probe_metrics.accuracy import eps, least
from probe_metrics.exact import scalars_against
from probe_metrics.kernel import sums
from probe_metrics.statistics import as_float, is_number
from probe_metrics.thresholds import thresholds


class FirstDifference:
    """The judgement behind ``-da``: tensors where they are there, else checksums, else statistics.

    ERROR: beyond rounding; PASS: within; SKIP: cannot be said. ``drift`` holds by how much where that is a
    number; without it an ERROR is no matter of size (shapes, scalars, checksums, nan at other places).

    Tensors: root mean square of the difference over that of the golden, against a number of units of the
    coarser dtype's eps; whole numbers and truth values must be equal. Statistics: the largest difference of
    maximum, minimum, mean and norm over the golden's magnitude, against the same.
    """

    def __init__(self) -> None:
        limits = thresholds("drift")
        self._jump = float(limits["jump"])
        self._floor: dict[str, float] = {name: limits["subnormals"] * least(name) for name in limits["noise"]}
        self._noise: dict[str, float] = {n: count * eps(n) for n, count in limits["noise"].items()}

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on one pair; its label is empty."""
        if not pair.pair.matched:
            return _skip("no partner")
        target, golden = (slot.value for slot in pair.slots)
        if pair.recorded_obstacle is not None:
            return _differs(f"shape {target.extent} against {golden.extent}")
        if pair.pair.scalars_differ:
            return _differs(scalars_against(target, golden))
        if target.kind is not Kind.TENSOR or golden.kind is not Kind.TENSOR:
            return Verdict(Level.PASS, "")
        if target.is_empty:
            return _skip("no elements")
        if pair.measurable:
            return self._by_tensor(pair, target, golden)
        if target.checksum is not None and golden.checksum is not None:
            found = self._by_checksum(target, golden)
            if found.level is not Level.SKIP or target.statistics.max is None:
                return found
        return self._by_statistics(target, golden)

    def _by_tensor(self, pair: OpenPair, target: Value, golden: Value) -> Verdict:
        found = pair.once(sums)
        if not found.aligned:
            return _differs("nan or inf stand at different places")
        are_whole = pair.target.dtype == pair.golden.dtype and pair.golden.dtype.kind in "iu"
        if are_whole and not found.distance and not found.tally.equal:
            return _differs("whole numbers that float64 does not tell apart")
        size = found.tally.finite or 1
        distance = _rms(found.distance, size, found.tally.max_absolute)
        scale = _rms(found.golden_norm, size, found.golden_largest)
        return self._by_distance(distance, scale, target, golden, "rms")

    def _by_checksum(self, target: Value, golden: Value) -> Verdict:
        if not same(target.dtype, golden.dtype):
            return _skip(f"checksums of {target.dtype} and {golden.dtype}")
        if target.checksum == golden.checksum:
            return Verdict(Level.PASS, "", drift=Drift(0.0, 0.0, self._of(target, golden), self._jump))
        return _differs(f"checksum {target.checksum} against {golden.checksum}")

    def _by_statistics(self, target: Value, golden: Value) -> Verdict:
        both = list(zip(("max", "min", "mean", "norm"), target.statistics, golden.statistics))
        pairs = [
            (name, as_float(one), as_float(other))
            for name, one, other in both
            if is_number(one) and is_number(other)
        ]
        for name, one, other in both:
            if type(one) is type(other) is int and one != other and float(one) == float(other):
                return _differs(f"{name} {one} against {other}")
            if isinstance(one, (bool, str)) and isinstance(other, (bool, str)) and one != other:
                return _differs(f"{name} {one!r:.24} against {other!r:.24}")
        if not pairs:
            nothing = both[0][1] is None or both[0][2] is None
            return _skip("nothing on record") if nothing else Verdict(Level.PASS, "")
        for name, one, other in pairs:
            if math.isfinite(one) != math.isfinite(other) or (
                not math.isfinite(one) and repr(one) != repr(other)
            ):
                return _differs(f"{name} {one!r:.24} against {other!r:.24}")
        finite = [item for item in pairs if math.isfinite(item[1])]
        scale = max((abs(other) for name, _, other in finite if name in ("max", "min")), default=0.0)
        worst, which = 0.0, "max"
        for name, one, other in finite:
            apart = abs(one - other)
            if name == "norm" and other and scale:
                apart *= scale / abs(other)
            if apart > worst:
                worst, which = apart, name
        return self._by_distance(worst, scale, target, golden, which)

    def _by_distance(self, distance: float, scale: float, target: Value, golden: Value, what: str) -> Verdict:
        noise = self._of(target, golden)
        if not noise and what in ("mean", "norm"):  # of whole numbers, computed in floating point
            noise = self._noise["float32"]
        if distance <= self._least(target, golden):
            distance = 0.0
        drift = Drift(distance, scale, noise, self._jump)
        relative = drift.relative_to(scale)
        if relative <= noise:
            return Verdict(Level.PASS, "", drift=drift)
        explained = f"where rounding explains {noise:.2g}" if noise else "where nothing is rounded"
        unit = "root mean square" if what == "rms" else "largest value"
        evidence = Reason("evidence", f"{what} off by {relative:.3g} of the golden's {unit}, {explained}")
        return Verdict(Level.ERROR, "", (evidence,), drift=drift)

    def _least(self, target: Value, golden: Value) -> float:
        """Differences up to this are rounding however small the values are: a few of the least numbers."""
        return max(self._floor.get(_name(value.dtype), 0.0) for value in (target, golden))

    def _of(self, target: Value, golden: Value) -> float:
        """What rounding explains in the coarser of both dtypes, 0 where nothing is rounded."""
        return max(self._dtype_noise(target.dtype), self._dtype_noise(golden.dtype))

    def _dtype_noise(self, dtype: str) -> float:
        return self._noise.get(_name(dtype), 0.0)


def _name(dtype: str) -> str:
    """The name of a recorded dtype, of a complex one that of its parts."""
    name = dtype.rpartition(".")[2].lower()
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def _rms(norm: float, size: int, largest: float) -> float:
    """The root mean square of a norm; where the norm left float64, no more than the largest element."""
    return min(norm / math.sqrt(size), largest)


def _differs(why: str) -> Verdict:
    return Verdict(Level.ERROR, "", (Reason("evidence", why),))


def _skip(why: str) -> Verdict:
    return Verdict(Level.SKIP, "", (Reason("evidence", why),))
