"""Pairs opened ahead: their order, what is done to them before their turn, and what fails then."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_metrics import kernel
from probe_metrics.kernel import sums

from probe_core import engine as core_engine
from probe_core.flow import ahead
from probe_core.flow.ahead import announce, opened_ahead
from probe_core.model.measure import OpenPair
from probe_core.testing import pair_of

if importlib.util.find_spec("probe_metrics._kernel") is None and "CI" not in os.environ:
    pytest.skip("probe_metrics._kernel is not built: there was no C++ compiler", allow_module_level=True)
compiled: Any = importlib.import_module("probe_metrics.compiled")

Array = np.ndarray[Any, Any]
LARGE = ahead.LARGE // 4


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled engine, whichever is asked for outside, and threads to measure on."""
    monkeypatch.setattr(kernel, "_compiled", compiled)
    monkeypatch.setattr(core_engine, "_threads", 2)


def pair(count: int, seed: int = 0) -> OpenPair:
    """A pair of float32 tensors with ``count`` elements a side."""
    generator = np.random.default_rng(seed)
    golden = generator.standard_normal(count).astype(np.float32)
    return pair_of(golden + np.float32(1e-3), golden)


def test_order_and_labels_without_pairs() -> None:
    """More than a batch of pairs, large and small, come as they went in."""
    pairs = [(number, None if number % 7 == 3 else pair(1 + number * 1000)) for number in range(200)]
    assert list(opened_ahead(iter(pairs), [kernel.measure_ahead])) == pairs
    assert list(opened_ahead([], [])) == []


def test_large_pairs_are_measured_before_their_turn() -> None:
    """With the tallies that they have when asked, and small ones not at all."""
    seen: list[OpenPair] = []

    def measure(pairs: Sequence[OpenPair]) -> None:
        seen.extend(pairs)
        kernel.measure_ahead(pairs)

    large, small = [pair(LARGE, seed) for seed in range(5)], pair(100)
    for _, each in opened_ahead(enumerate([*large[:2], small, *large[2:]]), [measure]):
        assert each is not None and (each is small) == (each not in seen)
    assert seen == large
    for seed, each in enumerate(large):
        assert each._shared.keys() == {sums}
        assert each.once(sums) == sums(pair(LARGE, seed))


def test_what_fails_ahead_is_left_to_the_metric() -> None:
    """The pairs come as if nothing had been tried."""

    def fail(pairs: Sequence[OpenPair]) -> None:
        raise MemoryError

    large = pair(LARGE)
    assert list(opened_ahead([("a", large)], [fail])) == [("a", large)]
    assert large.once(sums).aligned


def test_bytes_held_are_bounded() -> None:
    """Of many large pairs no more than two batches are open."""
    opened = 0

    def pairs() -> Any:
        nonlocal opened
        for number in range(40):
            opened += 1
            yield number, pair_of(np.zeros(1 << 20, np.float32), np.zeros(1 << 20, np.float32))

    for number, _ in opened_ahead(pairs(), []):
        assert (opened - number) * (8 << 20) <= 2 * ahead.BYTES


def test_a_walk_that_is_left_ends_its_thread() -> None:
    """Interruptions such as Ctrl-C."""
    walk = opened_ahead(((number, pair(LARGE)) for number in range(99)), [kernel.measure_ahead])
    next(walk)
    walk.close()  # type: ignore[attr-defined]


def test_requests_of_all_sorts_at_once() -> None:
    """Pairs that fit the compiled engine in one piece are measured, others are left alone."""
    golden = np.random.default_rng(0).standard_normal((512, 512))
    sorts: list[Array] = [
        golden, golden.astype(np.float16), golden.T, golden.astype(np.complex64), golden > 0,
        golden.astype(np.int32), golden.astype(">f4"),
    ]  # fmt: skip
    pairs = [pair_of(array, array.copy()) for array in sorts]
    kernel.measure_ahead(pairs)
    done = [bool(each._shared) for each in pairs]
    assert done == [True, True, False, False, True, True, False]
    assert all(each.once(sums).tally.max_absolute == 0 for each in pairs)


def test_many_at_once_give_what_each_gives() -> None:
    """On several threads, bit for bit."""
    generator = np.random.default_rng(0)
    sides = [generator.standard_normal((2, 1 + 997 * number)).astype(np.float32) for number in range(40)]
    requests = [(target, golden, None) for target, golden in sides]
    assert all(compiled.supports(*request) for request in requests)
    assert compiled.measure_many(requests) == [compiled.measure(*request) for request in requests]
    assert compiled.measure_many([]) == []


@pytest.mark.parametrize(
    "request_",
    [(b"ab", b"a", 8, 8, -1.0), (b"", b"", 8, 8, -1.0), (b"ab", b"ab", 99, 8, -1.0), "text", (1, 2)],
)
def test_requests_refused(request_: Any) -> None:
    """Before anything is measured, and the buffers of the others are let go."""
    held = bytearray(8)
    with pytest.raises((ValueError, TypeError)):
        compiled._kernel.measure_many([(held, held, 8, 8, -1.0), request_], 2)
    held += b"x"


def test_mapped_tensors_are_announced(tmp_path: Path) -> None:
    """Whatever part of the map they are; others are let be."""
    np.arange(1 << 20, dtype=np.float32).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r")
    for array in (mapped, mapped[5:], mapped[::2], mapped[::-1], mapped.reshape(64, -1).T, mapped[-1:]):
        announce(array)
    announce(np.zeros(3))
    announce(np.frombuffer(b"abcd", np.uint8))
