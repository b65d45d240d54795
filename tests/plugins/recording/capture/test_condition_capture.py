"""Captures of conditions that plugins offer, used without a session."""

from __future__ import annotations

from typing import Any

import pytest
from probe_recording.api import CaptureSpec, ConditionCapture
from probe_recording.capture.condition_capture import new_condition_capture
from probe_recording.specs import check_framework
from probe_recording.step_facts.conditions import Conditions


def test_a_framework_without_capture_has_what_the_kit_knows() -> None:
    capture = new_condition_capture("other")
    conditions = Conditions()
    with capture.quiet():
        capture.record_model_call(conditions, object(), (), {})
        capture.record_program(conditions)
    assert conditions.facts["versions"]["python"]
    assert [sample.point for sample in conditions.samples] == ["forward"]


def test_the_capture_of_a_plugin_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(ConditionCapture):
        def read_numerics(self) -> dict[str, Any]:
            return {"precision": "high"}

    spec = CaptureSpec("mine", "notes settings", Mine, framework="mine")
    monkeypatch.setattr("probe_recording.installed.find_spec", lambda *_: spec)
    assert new_condition_capture("mine").read_numerics() == {"precision": "high"}


def test_an_incomplete_spec_is_refused() -> None:
    with pytest.raises(TypeError, match="needs the name"):
        check_framework(CaptureSpec("mine", "notes", "a:b"))
