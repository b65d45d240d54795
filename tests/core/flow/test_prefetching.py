"""Groups measured ahead: their order, what is done to them before their turn, and what fails then."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_metrics import kernel
from probe_metrics.kernel import compute_group_sums
from probe_metrics.tally import Tallies, Tally

from probe_core import engine as core_engine
from probe_core.flow import prefetching
from probe_core.flow.prefetching import announce, group_pairs, measure_ahead
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.testing import pair_of

if importlib.util.find_spec("probe_metrics._kernel") is None and "CI" not in os.environ:
    pytest.skip("probe_metrics._kernel is not built: there was no C++ compiler", allow_module_level=True)
compiled: Any = importlib.import_module("probe_metrics.compiled")

Array = np.ndarray[Any, Any]
LARGE = prefetching.MIN_PARALLEL_BYTES // 4


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


def test_groups_hold_all_pairs_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes; small ones are together, and no pair gives one empty group."""
    monkeypatch.setattr(prefetching, "MAX_GROUP_BYTES", 1 << 20)
    pairs = [pair(1 + number * 1000) for number in range(200)]
    groups = [*group_pairs(pairs)]
    assert [each for group in groups for each in group] == pairs
    assert all(sum(each.nbytes for each in group[:-1]) < 1 << 20 for group in groups)
    assert len(groups[0]) > 10 and [len(group) for group in group_pairs([])] == [0]


def test_mapped_files_of_a_group_are_few() -> None:
    """They stay open until the group is measured; pairs in one packed file open it once."""
    files: list[Any] = [f"file {number}" for number in range(prefetching.MAX_MAPPED_FILES)]
    pairs = [pair(3) for _ in range(prefetching.MAX_MAPPED_FILES * 2)]
    for place, each in enumerate(pairs):
        each.mappings = files[place % prefetching.MAX_MAPPED_FILES], None
    assert [len(group) for group in group_pairs(pairs)] == [prefetching.MAX_MAPPED_FILES] * 2
    for each in pairs:
        each.mappings = files[0], files[1]
    assert [len(group) for group in group_pairs(pairs)] == [len(pairs)]


def test_labels_come_as_they_went_in() -> None:
    groups = [(number, PairGroup([pair(1 + number * 1000)])) for number in range(50)]
    assert list(measure_ahead(iter(groups), [kernel.measure_ahead])) == groups
    assert list(measure_ahead([], [])) == []


def test_large_groups_are_measured_before_their_turn() -> None:
    """With the sums that they have when asked, and small ones not at all."""
    seen: list[PairGroup] = []

    def measure(group: PairGroup) -> None:
        seen.append(group)
        kernel.measure_ahead(group)

    large, small = [PairGroup([pair(LARGE, seed)]) for seed in range(5)], PairGroup([pair(100)])
    for _, each in measure_ahead(enumerate([*large[:2], small, *large[2:]]), [measure]):
        assert (each is small) == (each not in seen)
    assert seen == large
    for seed, each in enumerate(large):
        assert each._shared.keys() == {compute_group_sums}
        assert list_sums(each) == list_sums(PairGroup([pair(LARGE, seed)]))


def test_only_measurable_pairs_are_measured_ahead() -> None:
    lost = pair(LARGE)
    lost.close()
    group = PairGroup([lost, pair(LARGE)])
    assert list(measure_ahead([("a", group)], [kernel.measure_ahead])) == [("a", group)]
    assert not group._shared and group.measurable._shared.keys() == {compute_group_sums}


def test_what_fails_ahead_is_left_to_the_metric() -> None:
    """The groups come as if nothing had been tried."""

    def fail(group: PairGroup) -> None:
        raise MemoryError

    large = PairGroup([pair(LARGE)])
    assert list(measure_ahead([("a", large)], [fail])) == [("a", large)]
    assert large.once(compute_group_sums).is_aligned.all()


def test_bytes_held_are_bounded() -> None:
    """Of many large pairs no more than two groups are open."""
    opened = 0

    def pairs() -> Any:
        nonlocal opened
        for _ in range(40):
            opened += 1
            yield pair_of(np.zeros(1 << 20, np.float32), np.zeros(1 << 20, np.float32))

    done = 0
    for _, group in measure_ahead(((0, group) for group in group_pairs(pairs())), []):
        done += len(group)
        assert (opened - done) * (8 << 20) <= prefetching.MAX_GROUP_BYTES


def test_a_walk_that_is_left_ends_its_thread() -> None:
    """Interruptions such as Ctrl-C."""
    walk = measure_ahead(((number, PairGroup([pair(LARGE)])) for number in range(99)), [kernel.measure_ahead])
    next(walk)
    walk.close()  # type: ignore[attr-defined]


def test_a_group_of_all_sorts() -> None:
    """Pairs that the compiled engine does not measure in one piece are measured by themselves."""
    golden = np.random.default_rng(0).standard_normal((512, 512))
    sorts: list[Array] = [
        golden, golden.astype(np.float16), golden.T, golden.astype(np.complex64), golden > 0,
        golden.astype(np.int32), golden.astype(">f4"), golden[:1, :1], golden[::2, ::3],
    ]  # fmt: skip
    group = PairGroup([pair_of(array + 1, array.copy()) for array in sorts])
    assert list_sums(group) == [sums for each in group for sums in list_sums(PairGroup([each]))]


def list_sums(group: PairGroup) -> list[list[Any]]:
    """Return the sums of each pair of a group."""
    tally, *columns = group.once(compute_group_sums)
    return [[tally[place], *(column[place] for column in columns)] for place in range(len(group))]


def test_many_at_once_give_what_each_gives() -> None:
    """On several threads, bit for bit."""
    generator = np.random.default_rng(0)
    sides = [generator.standard_normal((2, 1 + 997 * number)).astype(np.float32) for number in range(40)]
    requests = [(target, golden, None) for target, golden in sides]
    assert all(compiled.supports(*request) for request in requests)
    found = Tallies(compiled.measure_many(requests))
    assert [found[place] for place in range(40)] == [compiled.measure(*request) for request in requests]
    assert compiled.measure_many([]).shape == (0, len(Tally._fields))


@pytest.mark.parametrize(
    "request_",
    [(b"ab", b"a", 8, 8, -1.0), (b"", b"", 8, 8, -1.0), (b"ab", b"ab", 99, 8, -1.0), "text", (1, 2)],
)
def test_requests_refused(request_: Any) -> None:
    """Before anything is measured, and the buffers of the others are let go."""
    held = bytearray(8)
    with pytest.raises((ValueError, TypeError)):
        compiled._kernel.measure([(held, held, 8, 8, -1.0), request_], 2, bytearray(400))
    held += b"x"


def test_mapped_tensors_are_announced(tmp_path: Path) -> None:
    """Whatever part of the map they are; others are let be."""
    np.arange(1 << 20, dtype=np.float32).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r")
    for array in (mapped, mapped[5:], mapped[::2], mapped[::-1], mapped.reshape(64, -1).T, mapped[-1:]):
        announce(array)
    announce(np.zeros(3))
    announce(np.frombuffer(b"abcd", np.uint8))
