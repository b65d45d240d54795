"""The ring of kept steps, the history of quantities, and the events of a process."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from probe_recording.keeping.band import load_band_rule
from probe_recording.keeping.event import Cause, NoRise, Trigger
from probe_recording.keeping.history import History
from probe_recording.keeping.keeper import Keeper
from probe_recording.keeping.options import MIN_BYTES, KeepOptions, parse_options
from probe_recording.keeping.readings import QuantityName, QuantityReading
from probe_recording.keeping.rise import SettingChange, find_setting_change
from probe_recording.keeping.step_memory import MemoryDirectory, StepRing, StoredStep
from probe_recording.keeping.verdict_text import format_event
from probe_recording.keeping.watched_values import SeriesKind, WatchedValue
from probe_recording.run_directory.directory import StepDirectory

from probe_core.errors import UserError

NONE = np.array([], np.int32)
FOUR = KeepOptions(4)


def kept(number: int, *sizes: int) -> StoredStep:
    return StoredStep(number, "rank", {f"file{i}": bytes([number % 251]) * n for i, n in enumerate(sizes)}, -1, NONE)


def test_ring_keeps_the_last_steps() -> None:
    ring = StepRing(3, 1 << 20)
    for number in range(10):
        ring.add(kept(number, 100))
    assert [step.number for step in ring.steps] == [7, 8, 9] and ring.dropped_for_memory == 0


def test_ring_stays_below_its_bytes_and_counts_what_it_drops() -> None:
    ring = StepRing(100, 10_000)
    for number in range(50):
        ring.add(kept(number, 900 + 10 * number))
        held = sum(sys.getsizeof(data) for step in ring.steps for data in step.files.values())
        assert held <= ring.byte_count <= 10_000
    assert ring.steps[-1].number == 49 and ring.dropped_for_memory == 50 - len(ring.steps)


def test_ring_keeps_nothing_of_a_step_that_is_larger_than_its_bytes() -> None:
    ring = StepRing(3, 1000)
    ring.add(kept(0, 5000))
    assert ring.steps == [] and ring.dropped_for_memory == 1


def test_ring_holds_equal_files_once() -> None:
    ring = StepRing(10, 1 << 20)
    for number in range(10):
        ring.add(StoredStep(number, "rank", {"construct.json": b"a" * 1000 + b""}, -1, NONE))
        ring.steps[-1].files["construct.json"] = (
            bytes(bytearray(b"a" * 1000)) if number == 0 else ring.steps[-1].files["construct.json"]
        )
    assert ring.byte_count < 1200


def test_memory_directory_holds_files_and_blanks_a_part(tmp_path: Path) -> None:
    directory = MemoryDirectory(tmp_path, 3, "rank")
    assert not directory.has_begun
    directory.write("dump.json", '{"a": 1}')
    directory.overwrite_with_spaces("dump.json", 1, 3)
    assert directory.files == {"dump.json": b"{   : 1}"} and directory.path == tmp_path / "step3" / "rank"
    assert directory.log("stage", "name", ValueError("no"), []) is None
    with pytest.raises(UserError, match="without tensors"):
        _ = directory.tensors
    assert not list(tmp_path.iterdir())


def reading(name: str, size: float, phase: str = "batch") -> QuantityReading:
    return QuantityReading(QuantityName(phase, 0, name), size)


def test_history_equals_a_dictionary_of_lists() -> None:
    history = History(7, 1 << 20)
    expected: dict[str, list[float]] = {}
    chance = np.random.default_rng(3)
    for column in range(40):
        names = [f"q{i}" for i in range(90) if chance.random() < 0.8]
        values = {name: float(chance.random()) for name in names}
        number, rows = history.add([reading(name, size) for name, size in values.items()])
        assert number == column and [history.name(row).name for row in rows] == names
        for name in {*expected, *names}:
            past = expected.setdefault(name, [math.nan] * column)
            past.append(values.get(name, math.nan))
        before = history.get_earlier_sizes(column, 5)
        for row in rows:
            name = history.name(row).name
            assert np.array_equal(before[row], expected[name][:-1][-5:], equal_nan=True)
            assert history.get_sizes(column)[row] == values[name]


def test_history_leaves_out_quantities_beyond_its_bytes() -> None:
    history = History(10, 10 * 8 * 70)
    history.add([reading(f"q{i}", 1.0) for i in range(100)])
    assert history.left_out == 30 and history.byte_count <= 10 * 8 * 70


def value(number: float, kind: SeriesKind = SeriesKind.LOSS) -> WatchedValue:
    return WatchedValue(kind, 0, number)


def keeper_after(count: int, options: KeepOptions = FOUR) -> Keeper:
    keeper = Keeper(options)
    for number in range(count):
        assert end(keeper, number, 1.0) is None
    return keeper


def end(
    keeper: Keeper, number: int, loss: float, *readings: QuantityReading, is_scaled: bool = False
) -> Trigger | None:
    files = {"dump.json": f'{{"n": {number}}}'.encode()}
    return keeper.end_step(number, "rank", files, readings, [value(loss)], is_scaled=is_scaled)


def test_a_spike_triggers_one_event_until_as_many_steps_as_are_kept_were_quiet() -> None:
    keeper = keeper_after(60)
    triggers = [end(keeper, 60 + i, loss) is not None for i, loss in enumerate([9, 9, 1, 1, 9, 1, 1, 1, 1, 9])]
    assert triggers == [True] + [False] * 8 + [True]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_triggers_from_the_first_step_on(loss: float) -> None:
    keeper = Keeper(KeepOptions(4))
    trigger = end(keeper, 0, loss)
    assert trigger is not None and trigger.cause is Cause.NOT_FINITE
    event = keeper.explain(trigger)
    assert event.no_rise is NoRise.TOO_FEW_STEPS and "is not known" in format_event(event)
    json.dumps(event.plain(), allow_nan=False)


@pytest.mark.parametrize(
    ("phase", "is_scaled", "triggers"),
    [
        ("gradient", False, True),
        ("gradient", True, False),
        ("applied", True, True),
        ("parameters_before", False, True),
        ("state_before", False, True),
        ("buffers_before", False, False),
        ("batch", False, False),
        ("call", False, False),
    ],
)
def test_quantities_that_become_infinite(phase: str, is_scaled: bool, triggers: bool) -> None:
    keeper = Keeper(KeepOptions(4))
    end(keeper, 0, 1.0, reading("w", 1.0, phase))
    trigger = end(keeper, 1, 1.0, reading("w", math.inf, phase), is_scaled=is_scaled)
    assert (trigger is not None) is triggers
    for number in range(2, 20):
        assert end(keeper, number, 1.0, reading("w", math.inf, phase)) is None  # it was so before


def test_the_number_of_events_is_limited() -> None:
    keeper = keeper_after(60, KeepOptions(1, events=2))
    for number in range(60, 100):
        trigger = end(keeper, number, 9.0 if number % 5 == 0 else 1.0)
        if trigger is not None:
            keeper.explain(trigger)
    assert len(keeper.events) == 2 and keeper.events_left_out == 6


def test_write_writes_each_step_once_and_all_events_of_a_step(tmp_path: Path) -> None:
    keeper = keeper_after(60)
    trigger = end(keeper, 60, 99.0)
    assert trigger is not None
    written: list[int] = []

    def directory_of(step: StoredStep) -> StepDirectory:
        written.append(step.number)
        return StepDirectory(tmp_path, step.number, step.label)

    place = keeper.write(keeper.explain(trigger), directory_of)
    assert written == [60, 59, 58, 57] and place == tmp_path / "step60" / "rank"
    assert (tmp_path / "step58/rank/dump.json").read_text() == '{"n": 58}'
    second = keeper.begin_interrupt_event(Trigger(Cause.SIGNAL, 61, name="SIGUSR1"))
    assert second is not None
    keeper.write(keeper.explain(second), directory_of)
    events = json.loads((place / "watch.json").read_text())["events"]
    assert [event["cause"] for event in events] == ["outside_band", "signal"] and written[4:] == [60]


def test_the_latest_large_change_of_a_setting_is_found() -> None:
    def step(number: int, **settings: object) -> StoredStep:
        step_phases = {"phases": [{"phase": "settings", "facts": {"groups": [{"settings": settings}]}}]}
        return StoredStep(number, "rank", {"step_phases.json": json.dumps(step_phases).encode()}, -1, NONE)

    steps = [
        step(1, lr=0.1, foreach=True, betas=[0.9, 0.99]), step(2, lr=0.19, foreach=False), step(3, lr=0.0),
        step(4, lr=0.5, eps=1e-8), step(5, lr=0.9), kept(6, 10), step(7, lr=2.0),
    ]  # fmt: skip
    found = find_setting_change(steps, 7, 2)
    assert found == SettingChange("lr", 0, 4, 0.5, 0.0)
    assert find_setting_change(steps, 2, 2) is None and find_setting_change([], 7, 2) is None


def test_bytes_stay_below_the_memory() -> None:
    keeper = Keeper(KeepOptions(1000, memory=MIN_BYTES))
    for number in range(300):
        readings = [reading(f"q{i}", 1.0, "call") for i in range(500)]
        files = {"dump.json": bytes([number % 251]) * 20_000}
        keeper.end_step(number, "rank", files, readings, [], is_scaled=False)
        assert keeper.byte_count <= MIN_BYTES
    assert keeper.left_out_quantities and keeper.dropped_for_memory and keeper.steps
    keeper.reserve(MIN_BYTES // 2)
    assert keeper.byte_count <= MIN_BYTES // 2


def test_earlier_infinity_is_no_rise_and_order_decides() -> None:
    keeper = Keeper(KeepOptions(4))
    for number in range(100):
        is_last = number == 99
        end(
            keeper, number, 1.0,
            reading("mask", math.inf), reading("x", 1.0 + number % 3),
            reading("b", 50.0 if is_last else 1.0, "call"), reading("a", 50.0 if is_last else 1.0, "applied"),
        )  # fmt: skip
    event = keeper.explain(Trigger(Cause.EXCEPTION, 99, name="ValueError"))
    assert event.rise is not None and event.rise.name.name == "b" and event.rise.level == 1.0
    assert format_event(event).startswith("probe: ValueError was raised in step 99. Rose first: an activation, b,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep_last": 0}, "keep_last must be a whole number"),
        ({"keep_last": True}, "keep_last must be a whole number"),
        ({"keep_last": "5"}, "keep_last must be a whole number"),
        ({"keep_last": 10**9}, "keep_last must be a whole number"),
        ({"keep_last": 5, "memory": "5 parsecs"}, "keep_memory must be a size"),
        ({"keep_last": 5, "memory": 1000}, "keep_memory must be a size"),
        ({"keep_last": 5, "memory": 1.5e9}, "keep_memory must be a size"),
        ({"keep_last": 5, "signal_name": "USR3"}, "signal must be the name of a signal"),
        ({"keep_last": 5, "signal_name": 12}, "signal must be the name of a signal"),
        ({"keep_last": 5, "signal_name": "KILL"}, "no program can handle it"),
        ({"keep_last": 5, "signal_name": "SIGSEGV"}, "no Python code runs"),
        ({"keep_last": 5, "rerun": 1}, "rerun must be True or False"),
        ({"keep_last": 5, "events": 0}, "events must be a whole number"),
    ],
)
def test_invalid_options_are_one_sentence(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse_options(**arguments)  # type: ignore[arg-type]
    assert caught.value.fix.strip().endswith((".", "?"))


def test_options_are_named_as_they_were_given() -> None:
    with pytest.raises(UserError, match="--keep-memory must be a size"):
        parse_options(5, "x", is_command=True)
    options = parse_options(5, "1.5g", "term")
    assert options.memory == 3 << 29 and options.signal is not None and options.signal.name == "SIGTERM"


def test_rule_needs_as_many_steps_as_the_page_states() -> None:
    assert load_band_rule().level_steps + load_band_rule().least_steps == 48
