"""The pairing of calls while the program runs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from probe_recording.diff_check.call_stream import CallStream, GoldenCall, PairedCall, pair_kinds
from probe_recording.diff_check.recorded_call import CallForm, RecordedCall, get_form


def golden_calls(*calls: str) -> list[GoldenCall]:
    """Calls of the golden, each written as ``kind:value``."""
    return [GoldenCall(f"{text}.{number}", kind(text)) for number, text in enumerate(calls)]


def kind(text: str) -> str:
    return text.partition(":")[0]


class Call(RecordedCall):
    """A call of the target, whose kind is the first part of its text."""

    @property
    def form(self) -> CallForm:
        return CallForm(True, False, kind(self.text))


def run_stream(golden: Sequence[str], target: Sequence[str], *, settle: bool = True) -> list[PairedCall]:
    """Return the pairs of two runs, whose calls agree if their texts are equal."""
    stream = CallStream(golden_calls(*golden))
    pairs: list[PairedCall] = []
    for number, text in enumerate(target):
        call = Call(f"{text}#{number}", text, None, number)
        pairs += stream.take(call, lambda call, other: other.key.startswith(f"{call.text}."))
    return [*pairs, *(stream.settle() if settle else ())]


def pair(golden: Sequence[str], target: Sequence[str], *, settle: bool = True) -> list[tuple[str, str | None, bool]]:
    """Return the pairs as texts of both calls, with True if they agree."""
    texts = {call.key: text for call, text in zip(golden_calls(*golden), golden)}
    pairs = run_stream(golden, target, settle=settle)
    return [
        (pair.call.text, None if pair.golden_key is None else texts[pair.golden_key], pair.agrees) for pair in pairs
    ]


def test_take_pairs_equal_calls_at_once() -> None:
    calls = ["mul:1", "add:2", "mul:3"]
    assert pair(calls, calls, settle=False) == [(call, call, True) for call in calls]


@pytest.mark.parametrize("place", range(4))
def test_take_lets_an_inserted_call_shift_nothing(place: int) -> None:
    golden = ["mul:1", "add:2", "add:3"]
    target = [*golden[:place], "add:9", *golden[place:]]
    pairs = pair(golden, target)
    assert [item for item in pairs if item[0] != "add:9"] == [(call, call, True) for call in golden]
    assert ("add:9", None, False) in pairs


@pytest.mark.parametrize("place", range(4))
def test_take_lets_a_missing_call_shift_nothing(place: int) -> None:
    golden = ["mul:1", "add:2", "add:3", "mul:4"]
    target = [*golden[:place], *golden[place + 1 :]]
    assert pair(golden, target) == [(call, call, True) for call in target]


def test_take_pairs_a_call_that_differs_with_the_golden_call_in_its_place() -> None:
    pairs = pair(["mul:1", "add:2", "relu:3"], ["mul:1", "add:9", "relu:3"])
    assert pairs == [("mul:1", "mul:1", True), ("add:9", "add:2", False), ("relu:3", "relu:3", True)]


def test_take_gives_a_replaced_call_no_partner() -> None:
    pairs = pair(["mul:1", "gelu:2", "add:3"], ["mul:1", "tanh:8", "exp:9", "add:3"])
    assert [item[1:] for item in pairs] == [("mul:1", True), (None, False), (None, False), ("add:3", True)]


def test_take_settles_calls_that_wait_for_long() -> None:
    golden = [f"add:{number}" for number in range(40)]
    pairs = pair(golden, [f"add:{number + 100}" for number in range(40)], settle=False)
    assert len(pairs) >= 30 and not any(agrees for *_, agrees in pairs)
    assert [item[1] for item in pairs] == golden[: len(pairs)]


def test_take_pairs_each_call_of_the_golden_once_and_in_order() -> None:
    draw = random.Random(0)
    for _ in range(300):
        golden = [f"{draw.choice('ab')}:{draw.randrange(3)}" for _ in range(draw.randrange(12))]
        target = [f"{draw.choice('ab')}:{draw.randrange(3)}" for _ in range(draw.randrange(12))]
        pairs = run_stream(golden, target)
        assert sorted(pair.call.number for pair in pairs) == list(range(len(target)))
        places = [int(pair.golden_key.rpartition(".")[2]) for pair in pairs if pair.golden_key is not None]
        assert places == sorted(set(places))
        assert all(kind(pair.call.text) == kind(pair.golden_key or "") for pair in pairs if pair.golden_key)


def test_pair_kinds_finds_a_longest_common_subsequence() -> None:
    for targets, goldens in itertools.product(["", "a", "ab", "aba", "bbab"], repeat=2):
        pairs = pair_kinds(targets, goldens)
        assert all(targets[i] == goldens[j] for i, j in pairs.items())
        assert list(pairs) == sorted(pairs) and [*pairs.values()] == sorted(set(pairs.values()))
        longest = max(
            length
            for length in range(min(len(targets), len(goldens)) + 1)
            for part in itertools.combinations(targets, length)
            if part in set(itertools.combinations(goldens, length))
        )
        assert len(pairs) == longest


def test_get_form_keeps_the_path_of_a_module_and_drops_the_number_of_a_call() -> None:
    assert get_form("Functional.linear.3.forward").kind == "Functional.linear.forward"
    assert get_form("Module.layers.0.fc.Linear.forward.1").kind == "Module.layers.0.fc.Linear.forward.1"
