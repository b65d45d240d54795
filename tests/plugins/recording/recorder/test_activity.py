"""The reason why nothing was recorded, for each way in which that happens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from probe_recording.api import Config, Process
from probe_recording.messages import Notices
from probe_recording.recorder.activity import Activity, Position, check_later_steps, is_past_last_step, is_step_selected
from probe_recording.settings.config import parse

from probe_core.errors import UserError

CALLS = {"Functional.linear": 2, "Torch.relu": 1, "Module.head.Linear": 3}


@pytest.fixture(autouse=True)
def no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)


def activity(section: Any = None, *, starts: int = 1, **fields: Any) -> Activity:
    task = fields.get("task", "statistics")
    config = parse({"dump_path": "run", task: section or {}, **fields})
    result = Activity(config)
    for _ in range(starts):
        result.add_start()
    return result


def only(sentences: list[str]) -> str:
    (sentence,) = sentences
    return sentence


def with_calls(calls: dict[str, int], section: Any = None, **fields: Any) -> Activity:
    result = activity(section, **fields)
    result.add_step(calls)
    return result


def test_activity_names_the_nearest_call_of_an_unmatched_entry() -> None:
    found = with_calls(CALLS, {"list": ["Functional.linaer"]})
    assert only(found.list_sentences(0, Position())) == (
        'nothing was recorded: no record has a name that matches "Functional.linaer" in "list" '
        "(the nearest name is Functional.linear.1.forward)."
    )


def test_activity_names_the_last_record_of_an_exact_name() -> None:
    found = with_calls(CALLS, {"list": ["Functional.linear.7.forward", "Module.head.Linear.forward.5"]})
    sentence = only(found.list_sentences(0, Position()))
    assert "nearest name is Functional.linear.1.forward" in sentence
    assert "nearest name is Module.head.Linear.forward.2" in sentence


def test_activity_lists_names_if_none_is_near() -> None:
    found = with_calls({"Aten.addmm": 1, "Aten.t": 4}, {"list": ["Functional.gelu"]}, level="L2")
    assert "(level L2 has names such as Aten.addmm.0.forward, Aten.t.3.forward)" in only(
        found.list_sentences(0, Position())
    )


def test_activity_reports_an_unmatched_entry_beside_records() -> None:
    found = with_calls(CALLS, {"list": ["Functional", "name-regex(^Foo)"]})
    assert only(found.list_sentences(4, Position())).startswith(
        'no record has a name that matches "name-regex(^Foo)" in "list"'
    )
    assert (
        with_calls(CALLS, {"list": ["linear", "relu.0", "name-regex(head.*grad)"]}).list_sentences(4, Position()) == []
    )


def test_activity_names_steps_that_were_not_reached() -> None:
    sentence = only(activity(step=[100, 102]).list_sentences(0, Position(last_step=3)))
    assert sentence == "nothing was recorded: steps 100, 102 were selected, and the program ended in step 3."


def test_activity_reports_a_rank_that_no_process_has() -> None:
    found = activity(rank=[8])
    absent = Position(process_count=2, is_rank_selected=False)
    assert "selects rank 8, and the run has 2 ranks, 0 to 1." in only(found.list_sentences(0, absent))


def test_activity_is_silent_in_a_process_that_is_not_selected() -> None:
    assert activity(rank=[1]).list_sentences(0, Position(process_count=2, is_rank_selected=False)) == []


@pytest.mark.parametrize(
    ("found", "position", "words"),
    [
        (activity(dump_enable=False), Position(), '"dump_enable"'),
        (activity(starts=0), Position(), "start() was never called"),
        (activity(level="debug", starts=0), Position(), "save() was never called"),
        (with_calls({}, task="overflow_check"), Position(), "nan or an infinity"),
        (with_calls({}), Position(), "no call that level L1 records"),
        (with_calls({}), Position(has_compiled_code=True), "TORCH_COMPILE_DISABLE"),
        (with_calls(CALLS, {"scope": ["Torch.a.0.forward", "Torch.b.0.forward"]}), Position(), '"scope"'),
        (with_calls(CALLS, {"data_mode": ["backward"]}), Position(), "no backward pass"),
    ],
    ids=["disabled", "not started", "debug", "overflow", "no calls", "compiled", "scope", "backward"],
)  # fmt: skip
def test_activity_says_why_nothing_was_recorded(found: Activity, position: Position, words: str) -> None:
    sentence = only(found.list_sentences(0, position))
    assert sentence.startswith("nothing was recorded: ") and words in sentence


def test_activity_reports_stop_before_start() -> None:
    found = activity(starts=0)
    found.add_stop()
    assert "stop() was called before start()" in only(found.list_sentences(0, Position()))


def test_activity_names_the_exception_that_ended_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", KeyError(1), raising=False)
    assert "KeyError ended the program" in only(activity(starts=0).list_sentences(0, Position()))


def make_config(path: Path, steps: set[int]) -> Config:
    return Config(dump_path=path, shown_path=str(path), steps=frozenset(steps))


def test_all_steps_are_selected_by_default(tmp_path: Path) -> None:
    config = make_config(tmp_path, set())
    assert is_step_selected(config, 7, Notices()) and not is_past_last_step(config, 7)


def test_the_end_of_the_selected_steps_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, notices = make_config(tmp_path, {0, 2}), Notices()
    assert [step for step in range(6) if is_step_selected(config, step, notices)] == [0, 2]
    assert not is_past_last_step(config, 2) and is_past_last_step(config, 3)
    shown = "".join(capsys.readouterr())
    assert shown.count("step 2 was the last step to record; later steps are not recorded.") == 1


def test_a_directory_that_cannot_be_written_is_an_error_only_if_a_later_step_is_selected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = make_config(tmp_path / "file", {0, 2})
    check_later_steps(config, 2, Process())
    with pytest.raises(UserError, match="file"):
        check_later_steps(config, 1, Process())
