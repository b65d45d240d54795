"""Alignment of random streams, and of large runs."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from probe_matching.aligned import AlignmentMatcher
from probe_recording.reading.run import DumpRun
from support.measuring import PROPERTY
from support.runs.streams import PLAN, Data, Found, align, backward, call, look, module, run

# -- random streams ----------------------------------------------------------------------------------


class Made(NamedTuple):
    """A call of the stream that both runs are taken from."""

    name: str
    shape: int
    content: int
    sides: str
    home: int
    goes_back: bool


@st.composite
def streams(draw: Any, own_names: bool) -> list[Made]:
    """Calls with distinct contents; those of one side have names of their own, where that is asked for."""
    count = draw(st.integers(1, 25))
    made: list[Made] = []
    home = 0
    for content in range(count):
        sides = draw(st.sampled_from(["tg", "tg", "tg", "t", "g"]))
        name = draw(st.sampled_from(["add", "mul", "relu"]))
        prefix = sides if own_names and sides != "tg" else ""
        home += draw(st.sampled_from([0, 0, 0, 1]))
        made.append(Made(prefix + name, draw(st.integers(1, 2)), content, sides, home, draw(st.booleans())))
    return made


class Side(NamedTuple):
    """One of the two runs: its records, their parents, and what each call is called."""

    data: Data
    parents: dict[str, str]
    keys: dict[int, str]


def side_of(made: list[Made], side: str, first: dict[str, int], homes: set[int]) -> Side:
    """The run that has the calls of ``side``, numbered from ``first`` on, in the modules ``homes``."""
    counts = Counter(first)
    found = Side({}, {}, {})
    back: list[Data] = []
    for home, calls in itertools.groupby(made, key=lambda one: one.home):
        owner = f"Module.net.{home}.{'New' if side == 't' else 'Old'}.forward.0"
        for one in calls:
            if side not in one.sides:
                continue
            key = f"Torch.{one.name}.{counts[one.name]}"
            counts[one.name] += 1
            found.keys[one.content] = key
            found.data.update(call(key, (100 + one.content) / 100, [one.shape]))
            if home in homes:
                found.parents[f"{key}.forward"] = owner
            if one.goes_back:
                back.append(backward(key, (100 + one.content) / 100))
        if home in homes:
            found.data.update(module(f"net.{home}", "New" if side == "t" else "Old", value=50.0 + home))
    found.data.update(run(*reversed(back)))
    return found


def both_sides(made: list[Made], draw: Any) -> list[Side]:
    """The target and the golden, each with numbers and modules of its own."""
    sides = []
    homes = sorted({one.home for one in made})
    with_modules = draw(st.booleans())
    for side in "tg":
        first = {name: draw(st.integers(0, 3)) for name in sorted({one.name for one in made})}
        own = {home for home in homes if with_modules and draw(st.sampled_from([True, True, False]))}
        sides.append(side_of(made, side, first, own))
    return sides


def aligned_sides(target: Side, golden: Side) -> Found:
    with tempfile.TemporaryDirectory() as directory:
        return align(Path(directory), target.data, golden.data, target.parents, golden.parents)


@PROPERTY
@given(streams(own_names=True), st.data())
def test_exactly_the_surviving_calls_pair(made: list[Made], data: Any) -> None:
    target, golden = both_sides(made, data.draw)
    if not target.data or not golden.data:
        return
    wanted = {}
    for one in made:
        if one.sides == "tg":
            for phase in ("forward", "backward") if one.goes_back else ("forward",):
                wanted[f"{target.keys[one.content]}.{phase}"] = f"{golden.keys[one.content]}.{phase}"
    for key in target.data:
        other = key.replace(".New.", ".Old.")
        if key.startswith("Module.") and other in golden.data:
            wanted[key] = other
    assert aligned_sides(target, golden).pairs == wanted


@PROPERTY
@given(streams(own_names=False), st.data())
def test_surviving_calls_pair_whatever_stands_around_them(made: list[Made], data: Any) -> None:
    """Calls of one side may pair with alike calls of the other side, but never one that survives in both."""
    target, golden = both_sides(made, data.draw)
    if not target.data or not golden.data:
        return
    found = aligned_sides(target, golden)
    for one in made:
        if one.sides == "tg":
            assert found.pairs[f"{target.keys[one.content]}.forward"] == f"{golden.keys[one.content]}.forward"
            if one.goes_back:
                own, other = (f"{keys[one.content]}.backward" for keys in (target.keys, golden.keys))
                assert found.pairs[own] == other


@settings(PROPERTY, phases=[Phase.generate])
@given(streams(own_names=False), st.data())
def test_backward_calls_pair_only_behind_their_forward_calls(made: list[Made], data: Any) -> None:
    target, golden = both_sides(made, data.draw)
    if not target.data or not golden.data:
        return
    pairs = aligned_sides(target, golden).pairs
    for own, other in pairs.items():
        if own.endswith(".backward"):
            assert pairs.get(own.replace("backward", "forward")) == other.replace("backward", "forward")


def longest(ours: str, theirs: str) -> int:
    """The length of the longest common subsequence, of all there are."""

    @lru_cache(None)
    def best(i: int, j: int) -> int:
        if i == len(ours) or j == len(theirs):
            return 0
        skipped = max(best(i + 1, j), best(i, j + 1))
        return max(skipped, 1 + best(i + 1, j + 1)) if ours[i] == theirs[j] else skipped

    return best(0, 0)


def pairs_of_alike(ours: str, theirs: str) -> list[tuple[int, int]]:
    """The positions that pair in two streams of calls that all hold the same."""
    with tempfile.TemporaryDirectory() as directory:
        sides = []
        for text in (ours, theirs):
            keys = [f"Torch.{letter}.{number}" for number, letter in enumerate(text)]
            sides.append({f"{key}.forward": record for key in keys for record in call(key).values()})
        found = align(Path(directory), *sides)
    return sorted((int(a.split(".")[2]), int(b.split(".")[2])) for a, b in found.pairs.items())


words = st.text("ab", min_size=1, max_size=8)


@PROPERTY
@given(words, words)
def test_repeated_calls_pair_in_order_and_one_to_one(ours: str, theirs: str) -> None:
    pairs = pairs_of_alike(ours, theirs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert all(ours[i] == theirs[j] for i, j in pairs)


@PROPERTY
@given(words.map(lambda text: text + text), words.map(lambda text: text + text))
def test_repeated_calls_pair_as_many_as_can(ours: str, theirs: str) -> None:
    """Every call is there twice, so none is an anchor."""
    assert len(pairs_of_alike(ours, theirs)) == longest(ours, theirs)


@pytest.mark.parametrize("ours, theirs", [("abb", "bba"), ("abbbbb", "bbbbba"), ("bbab", "abbb")])
def test_a_call_that_moved_costs_no_other_pair(ours: str, theirs: str) -> None:
    assert len(pairs_of_alike(ours, theirs)) == longest(ours, theirs)


# -- size ----------------------------------------------------------------------------------------------


def large_run(path: Path, data: Data) -> DumpRun:
    path.write_text(json.dumps({"task": "statistics", "data": data}))
    return DumpRun(path, "pytorch", lambda path: np.zeros(1))


@pytest.mark.parametrize(
    "contents, count",
    [("alike", 4000), *(pytest.param(one, 20_000, marks=pytest.mark.slow) for one in ("distinct", "alike"))],
)
def test_many_calls_align_in_seconds(contents: str, count: int, tmp_path: Path) -> None:
    """Of many calls 5 % are inserted; where all hold the same, only what they are can tell."""
    random = np.random.default_rng(3)
    names = ["linear", "relu", "add", "mul", "softmax", "view", "permute", "dropout"]
    kinds = random.integers(len(names), size=count * 19 // 20).tolist()
    golden, target = {}, {}
    counts: Counter[str] = Counter()
    inserted = set(random.choice(count, count // 20, replace=False).tolist())
    number = 0
    wanted = {}
    for place in range(count):
        if place in inserted:
            target.update(call(f"Torch.new.{place}", 5.0))
            continue
        name = names[kinds[number]]
        value = 1 + number / 7 if contents == "distinct" else 1.0
        own = f"Torch.{name}.{counts[name] + 3}"
        target.update(call(own, value))
        golden.update(call(f"Torch.{name}.{counts[name]}", value))
        wanted[f"{own}.forward"] = f"Torch.{name}.{counts[name]}.forward"
        counts[name] += 1
        number += 1
    ours, theirs = (large_run(tmp_path / f"{len(data)}.dump.json", data) for data in (target, golden))
    started = time.process_time()
    matching = AlignmentMatcher().match(ours, theirs, PLAN)
    assert time.process_time() - started < 60 * count / 20_000
    found = look(matching, ours, theirs)
    assert found.pairs == wanted
    assert sum(len(one) for one, _ in found.regions) == count // 20
