"""The compiled engine and numpy's: the same bits, both right, and nothing that brings the process down."""

from __future__ import annotations

import cmath
import importlib
import importlib.util
import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_metrics import blocked, kernel
from probe_metrics.tally import NO_TOTALS, SUM_COUNT, Tally, Units
from probe_metrics.ulp_units import choose_units
from support.cases import every
from support.measuring import PROPERTY
from support.sampling import sampled

from probe_core import engine as core_engine
from probe_core.model.measure import BLOCK_ELEMENTS, PIECE_ELEMENTS
from probe_core.testing import pair_of

if importlib.util.find_spec("probe_metrics._kernel") is None and "CI" not in os.environ:
    pytest.skip("probe_metrics._kernel is not built: there was no C++ compiler", allow_module_level=True)
compiled: Any = importlib.import_module("probe_metrics.compiled")
kernel_measure: Any = importlib.import_module("probe_metrics._kernel").measure

Array = np.ndarray[Any, Any]
Sides = tuple[Array, Array]

inf, nan = math.inf, math.nan

DTYPES = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in compiled.DTYPE_CODES}
FLOATS = ("float64", "float32", "float16", "bfloat16")
SIZES = (1, 2, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 8191, 8192, 8193, 20000)
EXTREMA = ("target_max", "target_min", "golden_max", "golden_min")
ENGINES = {"compiled": compiled, "numpy": None}


@pytest.fixture(scope="module", autouse=True)
def _known() -> None:
    """Ask the kernel for each dtype, as whoever measures does first, whichever test is the first in its process."""
    for dtype in DTYPES.values():
        assert compiled.supports(np.zeros(1, dtype), np.zeros(1, dtype), None)


# -- arrays: each takes (dtype, size, rng), or (target, golden, size, rng) and makes both sides ---


def patterns(dtype: Any, size: int, rng: Any) -> Array:
    """Random bits: every kind of number there is, and truth values that are neither 0 nor 1."""
    return np.frombuffer(rng.bytes(size * dtype.itemsize), np.uint8).view(dtype)


def plain(dtype: Any, size: int, rng: Any) -> Array:
    return rng.normal(0, 3, size).astype(dtype) if dtype.name in FLOATS else patterns(dtype, size, rng)


def zeros(dtype: Any, size: int, rng: Any) -> Array:
    return rng.choice([0.0, -0.0], size).astype(dtype)


def denormals(dtype: Any, size: int, rng: Any) -> Array:
    if dtype.name not in FLOATS:
        return plain(dtype, size, rng)
    bits = rng.integers(0, 1 << ml_dtypes.finfo(dtype).nmant, size).astype(f"u{dtype.itemsize}")
    return np.where(rng.random(size) < 0.5, -bits.view(dtype), bits.view(dtype))


def close(target: Any, golden: Any, size: int, rng: Any) -> Sides:
    values = rng.uniform(1, 100, size)
    return (values * (1 + rng.normal(0, 2e-3, size))).astype(target), values.astype(golden)


def odd(side: Array, marks: Array) -> Array:
    """The side with nan and inf where the marks have them, if it can hold them."""
    return np.where(np.isfinite(marks), side, marks.astype(side.dtype)) if side.dtype.name in FLOATS else side


def aligned(target: Any, golden: Any, size: int, rng: Any) -> Sides:
    marks = rng.choice([nan, inf, -inf, 0.0], size)
    return odd(plain(target, size, rng), marks), odd(plain(golden, size, rng), marks)


def apart(target: Any, golden: Any, size: int, rng: Any) -> Sides:
    """Nan and inf here and there on both sides."""
    first, second = (rng.choice([nan, inf, -inf, *[0.0] * 9], size) for _ in "01")
    return odd(plain(target, size, rng), first), odd(plain(golden, size, rng), second)


def identical(target: Any, golden: Any, size: int, rng: Any) -> Sides:
    """The same bits where the dtypes agree, else one side rounded to the other's dtype."""
    found = patterns(target, size, rng) if target == golden else plain(target, size, rng)
    return found, found.astype(golden)


def last_bit(target: Any, golden: Any, size: int, rng: Any) -> Sides:
    """Identical but for the last bit of the last element and of some others."""
    ours, theirs = identical(target, golden, size, rng)
    lowest = ours.copy().view(np.uint8).reshape(size, -1)
    lowest[(rng.random(size) < 0.001) | (np.arange(size) == size - 1), 0] ^= 1
    return lowest.reshape(-1).view(target), theirs


def each(make: Callable[..., Array]) -> Callable[..., Sides]:
    return lambda target, golden, size, rng: (make(target, size, rng), make(golden, size, rng))


SUMMABLE: dict[str, Callable[..., Sides]] = {
    "plain": each(plain), "zeros": each(zeros), "denormals": each(denormals), "close": close, "aligned": aligned,
    "nonfinite_mismatches": apart,
}  # fmt: skip
"""Contents whose squares float64 can hold, whatever the dtype."""
CONTENTS = [*SUMMABLE.values(), each(patterns), identical, last_bit]

# -- tallies -----------------------------------------------------------------------------------


def bits(tally: Tally) -> dict[str, Any]:
    """A tally with every bit of its floats."""
    return {name: item.hex() if isinstance(item, float) else item for name, item in tally._asdict().items()}


def agree(target: Array, golden: Array, units: Units | None = None) -> Tally:
    """Both engines give the same bits; the tally."""
    assert compiled.supports(target, golden, units)
    found: Tally = compiled.measure(target, golden, units)
    assert bits(found) == bits(blocked.measure(target, golden, units))
    return found


def alternatives(target: np.dtype[Any], golden: np.dtype[Any]) -> list[Units | None]:
    """Without distances, and with them where the compiled engine knows them."""
    units = choose_units(target, golden) if target == golden else None
    return [None, units] if units else [None]


def alike(ours: float, theirs: float) -> bool:
    return ours == theirs or (math.isnan(ours) and math.isnan(theirs))


def place(array: Array) -> list[int]:
    """The place of each element among the numbers of its dtype; both zeros have place 0."""
    sign = 1 << (8 * array.dtype.itemsize - 1)
    return [sign - bits if bits & sign else bits for bits in array.view(f"u{array.dtype.itemsize}").tolist()]


def hold_against_reference(found: Tally, target: Array, golden: Array, units: Units | None = None) -> None:
    """Every field by Python's own arithmetic; moduli of complex data may be off in the last digit."""
    is_complex = "c" in target.dtype.kind + golden.dtype.kind
    number = complex if is_complex else float
    sides = [[number(item) for item in side.tolist()] for side in (target, golden)]
    exact: dict[str, Any] = {"size": target.size}
    exact["equal"] = target.dtype == golden.dtype and target.tobytes() == golden.tobytes()
    for name, side in zip(("target", "golden"), sides):
        moduli = [abs(item) if is_complex else item for item in side if cmath.isfinite(item)]
        exact[f"{name}_max"], exact[f"{name}_min"] = max(moduli, default=-inf), min(moduli, default=inf)
        exact[f"{name}_nan"] = sum(map(cmath.isnan, side))
        exact[f"{name}_infinite"] = sum(cmath.isinf(item) and not cmath.isnan(item) for item in side)
    finite = [cmath.isfinite(n) and cmath.isfinite(b) for n, b in zip(*sides)]
    pairs = [(n, b) if both else (0.0, 0.0) for n, b, both in zip(*sides, finite)]
    exact["nonfinite_mismatches"] = sum(
        not (both or (alike(n.real, b.real) and alike(n.imag, b.imag))) for n, b, both in zip(*sides, finite)
    )
    absolute = [abs(n - b) for n, b in pairs]
    relative = [(d / abs(b) if b else inf) if d else 0.0 for d, (_, b) in zip(absolute, pairs)]
    steps = [0] * target.size
    if units is not None:
        steps = [abs(n - b) if both else 0 for n, b, both in zip(place(target), place(golden), finite)]
        exact["over_limit"] = sum(step > units.limit for step in steps)
    exact.setdefault("over_limit", 0)
    exact |= {"max_absolute": max(absolute), "max_relative": max(relative), "max_ulp": float(max(steps))}
    exact |= {"below_one": sum(r < 1e-3 for r in relative), "below_five": sum(r < 5e-3 for r in relative)}
    summed = {
        "relative": relative, "squares": [d * d for d in absolute], "ulp": steps,
        "target_squares": [n.real * n.real + n.imag * n.imag for n, _ in pairs],
        "golden_squares": [b.real * b.real + b.imag * b.imag for _, b in pairs],
        "dot": [n.real * b.real + n.imag * b.imag for n, b in pairs],
        "target": [n.real for n, _ in pairs], "golden": [b.real for _, b in pairs],
    }  # fmt: skip
    assert {*exact, *summed} == {*Tally._fields}
    for name, value in exact.items():
        wanted = pytest.approx(value, rel=1e-15) if is_complex and isinstance(value, float) else value
        assert getattr(found, name) == wanted, name
    for name, terms in summed.items():
        little = 1e-12 * math.fsum(map(abs, terms))
        assert getattr(found, name) == pytest.approx(math.fsum(terms), rel=0, abs=little), name


# -- the same bits -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "target, golden", sampled(itertools.product(DTYPES, DTYPES), 0.3, lambda case: case[0] == case[1])
)
def test_engines_agree(target: str, golden: str) -> None:
    """Any two dtypes, any content, at sizes around lanes, pieces and blocks."""
    rng = np.random.default_rng(7)
    ours, theirs = DTYPES[target], DTYPES[golden]
    for make, size in itertools.product(CONTENTS, SIZES):
        arrays = make(ours, theirs, size, rng)
        for units in alternatives(ours, theirs):
            agree(*arrays, units)


def test_engines_agree_on_the_sign_of_zero() -> None:
    for size in range(2, 70):
        array = zeros(DTYPES["float64"], size, np.random.default_rng(size))
        found, expected = (engine.measure(array, array, None) for engine in (compiled, blocked))
        for name in EXTREMA:
            assert getattr(found, name).hex() == getattr(expected, name).hex()


SPREAD = [
    (kinds, place) for place in (0, -1) for kinds in (("float32", "float32"), ("int8", "float16"), ("bool", "bool"))
]


@pytest.mark.parametrize("kinds, place", sampled(SPREAD, 0, [SPREAD[1], SPREAD[3]].__contains__))
def test_threads_do_not_change_a_bit(kinds: tuple[str, str], place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for five threads, with a rest of a block, nan and inf; one dtype differs at one end only."""
    ours, theirs = (DTYPES[kind] for kind in kinds)
    few = apart(ours, theirs, 100_003, np.random.default_rng(1))
    target, golden = (np.resize(side, 5 * (1 << 21) + 12_345) for side in few)
    if ours == theirs:
        target = golden.copy()
        target[place] = golden[place] != 1
    units = alternatives(ours, theirs)[-1]
    expected = bits(blocked.measure(target, golden, units))
    for threads in (1, 2, 5, 64):
        monkeypatch.setattr(core_engine, "_threads", threads)
        monkeypatch.setattr(compiled, "MAX_THREADS", threads)
        assert bits(compiled.measure(target, golden, units)) == expected, threads


@pytest.mark.parametrize("engine", [compiled, blocked], ids=ENGINES)
def test_callers_on_threads_do_not_disturb_each_other(engine: Any) -> None:
    rng = np.random.default_rng(2)
    jobs = [apart(DTYPES["float32"], DTYPES["int16"], 30_000, rng) for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda job: bits(engine.measure(*job, None)), jobs))
    assert found == [bits(blocked.measure(*job, None)) for job in jobs]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("pieces", [[1, 1, 1], [3, 1], [1, 2]])
def test_pieces_go_on_where_the_last_one_ended(name: str, pieces: list[int]) -> None:
    """Pieces of whole blocks, each by an engine of its own."""
    dtype = DTYPES[name]
    rng = np.random.default_rng(3)
    units = choose_units(dtype, dtype)
    for make in (close, apart, identical):
        target, golden = make(dtype, dtype, sum(pieces) * BLOCK_ELEMENTS - 100, rng)
        whole = agree(target, golden, units)
        for engines in itertools.product((compiled, blocked), repeat=len(pieces)):
            found, totals, start = None, NO_TOTALS, 0
            for engine, blocks in zip(engines, pieces):
                part = slice(start * BLOCK_ELEMENTS, (start + blocks) * BLOCK_ELEMENTS)
                piece = engine.measure(target[part], golden[part], units, totals)
                found = piece if found is None else found.add_next(piece)
                totals, start = found.totals, start + blocks
            assert found is not None and bits(found) == bits(whole)


# -- arrays that do not lie one behind the other -----------------------------------------------

LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "every other": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": lambda a: a.T.copy().T,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "swapped and transposed": lambda a: a.T.astype(a.dtype.newbyteorder()).T,
    "off by a byte": lambda a: np.frombuffer(b"\0" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kinds", [("float32", "float32"), ("float64", "int16"), ("bool", "bfloat16")])
@pytest.mark.parametrize("rows", [1, 37, PIECE_ELEMENTS // 100])
def test_layouts(engine: str, layout: str, kinds: tuple[str, str], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides and byte order change nothing, also where pieces of a tensor are copied."""
    monkeypatch.setattr(kernel, "_compiled", ENGINES[engine])
    ours, theirs = (DTYPES[kind] for kind in kinds)
    target, golden = (a.reshape(rows, 101) for a in apart(ours, theirs, rows * 101, np.random.default_rng(4)))
    units = alternatives(ours, theirs)[-1]
    expected = bits(blocked.measure(target.reshape(-1), golden.reshape(-1), units))
    arrange = LAYOUTS[layout]
    for pair in ((arrange(target), golden), (target, arrange(golden)), (arrange(target), arrange(golden))):
        if "swapped" not in layout or theirs.kind != "V":  # those of ml_dtypes have one byte order
            assert bits(kernel.measure(pair_of(*pair), units)) == expected


# -- what the numbers are ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("content", SUMMABLE)
@pytest.mark.parametrize("target", DTYPES)
def test_reference(target: str, content: str) -> None:
    """Each dtype against itself, with distances, and against some others."""
    rng = np.random.default_rng(5)
    ours = DTYPES[target]
    for golden, size in [(target, 1500), ("float32", 130), ("int64", 70), ("bfloat16", 65), (target, 1)]:
        theirs = DTYPES[golden]
        arrays = SUMMABLE[content](ours, theirs, size, rng)
        units = alternatives(ours, theirs)[-1]
        hold_against_reference(agree(*arrays, units), *arrays, units)


def test_reference_over_several_blocks() -> None:
    dtype = DTYPES["float32"]
    arrays = apart(dtype, dtype, 2 * BLOCK_ELEMENTS + 77, np.random.default_rng(6))
    hold_against_reference(agree(*arrays, choose_units(dtype, dtype)), *arrays, choose_units(dtype, dtype))


def test_truth_values_of_other_bytes() -> None:
    """Any byte but 0 is true; equal are bytes, not truth."""
    odd, usual = np.array([2, 0, 255, 1], np.uint8).view(bool), np.array([True, False, True, True])
    for target, golden in ((odd, usual), (usual, odd), (odd, usual.astype(np.float32)), (odd, odd)):
        found = agree(target, golden)
        assert (found.max_absolute, found.target, found.golden, found.target_max) == (0, 3, 3, 1)
        assert found.equal is (target is golden)


OTHERS = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name in ("complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")
}


def with_nan_and_inf(dtype: Any, rng: Any) -> Array:
    """Numbers with nan, and complex ones with inf in either part, if the dtype has them."""
    if dtype.kind == "b":
        return plain(dtype, 700, rng)
    found = np.where(rng.random(700) < 0.1, nan, rng.normal(0, 3, 700))
    if dtype.kind == "c":
        found = found + 1j * rng.normal(0, 3, 700)
        found[:60] = rng.choice([complex(inf, nan), complex(1, -inf), complex(nan, 0), 2j], 60)
    return found.astype(dtype)


@every("golden", [*OTHERS, "float32", "bool"])
@every("target", OTHERS)
def test_what_only_numpy_knows(target: str, golden: str) -> None:
    rng = np.random.default_rng(8)
    ours, theirs = (with_nan_and_inf({**OTHERS, **DTYPES}[name], rng) for name in (target, golden))
    units = choose_units(ours.dtype, theirs.dtype) if target == golden else None
    assert not compiled.supports(ours, theirs, units)
    assert not compiled.supports(theirs, ours, units)
    hold_against_reference(kernel.measure(pair_of(ours, theirs), units), ours, theirs, units)


def test_distances_between_two_dtypes_are_left_to_numpy() -> None:
    fine, coarse = np.ones(3, np.float32), np.ones(3, np.float16)
    units = choose_units(fine.dtype, coarse.dtype)
    assert compiled.supports(fine, coarse, None) and not compiled.supports(fine, coarse, units)
    assert kernel.measure(pair_of(fine, coarse), units).max_ulp == 0


# -- what the compiled engine refuses ----------------------------------------------------------

FOUR, NONE, SINGLE, WHOLE = np.ones(4), np.empty(0), np.ones(4, np.float32), np.ones(4, np.int64)
REFUSED: dict[str, tuple[Any, ...]] = {
    "code below": (FOUR, FOUR, -1, 0, -1.0), "code above": (FOUR, FOUR, 0, 13, -1.0),
    "golden shorter": (FOUR, FOUR[:3], 0, 0, -1.0), "target shorter": (FOUR[:3], FOUR, 0, 0, -1.0),
    "golden of another size than told": (FOUR, FOUR, 0, 1, -1.0), "no whole": (b"abc", b"abc", 0, 0, -1.0),
    "both empty": (NONE, NONE, 0, 0, -1.0), "golden empty": (FOUR, NONE, 0, 0, -1.0),
    "target with gaps": (np.ones(8)[::2], FOUR, 0, 0, -1.0),
    "golden transposed": (FOUR, np.ones((3, 2)).T[:2, :2], 0, 0, -1.0),
    "distances of two dtypes": (FOUR, SINGLE, 0, 1, 1.0), "of integers": (WHOLE, WHOLE, 7, 7, 1.0),
    "of bytes": (WHOLE, WHOLE, 4, 4, 1.0), "of truth values": (WHOLE, WHOLE, 12, 12, 0.0),
    "TypeError: text": ("text", FOUR, 0, 0, -1.0), "TypeError: None": (FOUR, None, 0, 0, -1.0),
    "TypeError: too few": (FOUR, FOUR), "TypeError: limit": (FOUR, FOUR, 0, 0, "1"),
    "TypeError: seven totals": (FOUR, FOUR, 0, 0, -1.0, (0.0,) * 7),
}  # fmt: skip


def measure_raw(*request: Any, threads: int = 1, rows: int = 1) -> None:
    """Measure one pair by the kernel itself."""
    kernel_measure([request], threads, np.empty((rows, len(Tally._fields))))


@pytest.mark.parametrize("rows", [0, 2])
def test_a_table_of_another_size_is_refused(rows: int) -> None:
    with pytest.raises(ValueError, match="25 numbers"):
        measure_raw(FOUR, FOUR, 0, 0, -1.0, rows=rows)


@every("case", REFUSED)
def test_refused(case: str) -> None:
    with pytest.raises(TypeError if case.startswith("TypeError") else (ValueError, BufferError)):
        measure_raw(*REFUSED[case])


def test_buffers_are_let_go() -> None:
    """Of a refused pair as of a measured one: a bytearray that is in use cannot grow."""
    target, golden = bytearray(FOUR.tobytes()), bytearray(FOUR.tobytes())
    measure_raw(target, golden, 0, 0, -1.0)
    for codes in ((99, 0), (0, 1)):
        with pytest.raises(ValueError):
            measure_raw(target, golden, *codes, -1.0)
    target += b"x"
    golden += b"x"


@pytest.mark.parametrize("threads", [0, -2])
def test_no_threads(threads: int) -> None:
    request = "(bytes(1 << 24), bytes(1 << 24), 8, 8, -1.0)"
    script = f"from probe_metrics._kernel import measure; measure([{request}], {threads}, bytearray(25 * 8))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 or "ValueError" in done.stderr


# -- properties --------------------------------------------------------------------------------


@st.composite
def raw_arrays(draw: st.DrawFn) -> Sides:
    """Two arrays of any bits and any dtypes, of one length."""
    kinds = st.sampled_from(sorted(DTYPES))
    ours = DTYPES[draw(kinds)]
    theirs = ours if draw(st.booleans()) else DTYPES[draw(kinds)]
    size = draw(st.integers(1, 140))
    lengths = [size * dtype.itemsize for dtype in (ours, theirs)]
    first, second = (np.frombuffer(draw(st.binary(min_size=n, max_size=n)), np.uint8) for n in lengths)
    if ours == theirs and draw(st.booleans()):
        second = np.where(np.arange(second.size) == draw(st.integers(0, size)), second, first)
    return first.view(ours), second.view(theirs)


@PROPERTY
@given(raw_arrays())
def test_engines_agree_on_anything(arrays: Sides) -> None:
    for units in alternatives(arrays[0].dtype, arrays[1].dtype):
        agree(*arrays, units)


@PROPERTY
@given(raw_arrays())
def test_sides_swapped(arrays: Sides) -> None:
    """Measures of a side go with it; only relative errors know which side is golden."""
    units = alternatives(arrays[0].dtype, arrays[1].dtype)[-1]
    there, back = (bits(compiled.measure(*order, units)) for order in (arrays, arrays[::-1]))
    relative = {"relative", "max_relative", "below_one", "below_five"}
    for name in set(Tally._fields) - relative:
        ours, rest = name[:6], name[6:]
        mirror = {"target": "golden", "golden": "target"}.get(ours, ours)
        assert there[name] == back[mirror + rest], name


@PROPERTY
@given(raw_arrays())
def test_identity(arrays: Sides) -> None:
    """No error in any sense, whatever the bits."""
    array = arrays[0]
    found = agree(array, array.copy(), alternatives(array.dtype, array.dtype)[-1])
    assert found.equal and found.below_one == found.below_five == array.size
    assert not any(
        (found.nonfinite_mismatches, found.max_absolute, found.max_relative, found.max_ulp, found.over_limit)
    )
    assert not any((found.relative, found.squares, found.ulp))
    assert bits(found)["target_squares"] == bits(found)["golden_squares"] == bits(found)["dot"]


@PROPERTY
@given(raw_arrays(), st.randoms(use_true_random=False))
def test_order_of_elements(arrays: Sides, random: Any) -> None:
    """Counts and extrema do not depend on it."""
    order = list(range(arrays[0].size))
    random.shuffle(order)
    units = alternatives(arrays[0].dtype, arrays[1].dtype)[-1]
    plain_order = compiled.measure(*arrays, units)
    assert plain_order[:-SUM_COUNT] == compiled.measure(*(side[order] for side in arrays), units)[:-SUM_COUNT]


# -- which engine it is ------------------------------------------------------------------------


def run(arguments: list[str], engine: str | None, **more: Any) -> subprocess.CompletedProcess[str]:
    """A fresh process with this engine asked for."""
    environment = {name: value for name, value in os.environ.items() if name != "PROBE_ENGINE"}
    environment |= {} if engine is None else {"PROBE_ENGINE": engine}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **more)


def choose(engine: str | None, module: str = "probe_metrics.compiled") -> str:
    """The name of the module that ``probe_core.engine.compiled`` gives, or the UserError it raises."""
    script = (
        f"from probe_core.engine import import_compiled; print(getattr(import_compiled({module!r}), '__name__', None))"
    )
    done = run(["-c", script], engine)
    return done.stdout.strip() or done.stderr[done.stderr.index("UserError: ") :]


def test_choice_of_the_engine() -> None:
    missing = "probe_metrics.missing"
    assert choose(None) == choose("") == choose("compiled") == "probe_metrics.compiled"
    assert choose("numpy") == choose(None, missing) == "None"
    assert choose("compiled", missing).startswith("UserError: The compiled engine is not installed: ")
    for name in ("fortran", "Numpy", " compiled"):
        said = choose(name)
        assert f'"{name}"' in said and said.split()[-2:] == ["compiled", "numpy"], said


CASES = ("tensor_L1_edge", "tensor_L1_mlp_bf16", "tensor_L1_dist2", "stat_L1_edge", "stat_mix_dist2",
         "md5_L1_edge")  # fmt: skip


def compare(case: Path, out: Path, engine: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = "-m probe_core.cli compare --framework pytorch -i compare.json -hl --format csv,jsonl,xlsx -o"
    return run([*command.split(), str(out), *options], engine, cwd=case)


@pytest.mark.parametrize("case", sampled(CASES, 0, ("tensor_L1_edge", "stat_mix_dist2", "md5_L1_edge").__contains__))
def test_files_are_the_same_bytes(case: str, runs: Any, tmp_path: Path) -> None:
    """csv, jsonl and xlsx of a comparison, whichever engine measured and wrote."""
    metrics = ("ulp", "rmse", "mape", "equal") if case.startswith("tensor") else ()
    made: list[dict[str, bytes]] = []
    for engine in ENGINES:
        out = tmp_path / engine
        done = compare(runs(case), out, engine, *(f"--metric={name}" for name in metrics))
        assert done.returncode == 0, done.stderr
        tables = out.glob("*compare_result*")
        made.append({re.sub(r"\d{14}", "", path.name): path.read_bytes() for path in tables})
    assert made[0] == made[1]
    assert {Path(name).suffix for name in made[0]} == {".csv", ".jsonl", ".xlsx"}


def test_unknown_engine_on_the_command_line(runs: Any, tmp_path: Path) -> None:
    done = compare(runs(CASES[0]), tmp_path / "out", "fortran")
    assert done.returncode == 2
    assert '"fortran"' in done.stderr and "Traceback" not in done.stderr
