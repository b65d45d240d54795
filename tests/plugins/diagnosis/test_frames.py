from __future__ import annotations

import pytest
from probe_diagnosis.frames import find_entering_frame, find_own_frame

FRAMES = (
    "File /env/lib/python3.11/site-packages/torch/nn/functional.py, line 1, in linear, \n return f(x)",
    "File net.py, line 9, in forward, \n return self.head(x)",
    "File /env/lib/python3.11/site-packages/torch/nn/modules/module.py, line 2, in _call_impl, \n return f(x)",
    "File train.py, line 5, in step, \n model(batch)",
    "File train.py, line 8, in <module>, \n step()",
)


@pytest.fixture(autouse=True)
def _framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_diagnosis.frames.FRAMEWORK_FRAMES", {"-packages/torch/"})


def test_the_entering_frame_is_the_line_that_calls_the_model() -> None:
    assert find_own_frame(FRAMES) == "File net.py, line 9, in forward, return self.head(x)"
    assert find_entering_frame(FRAMES) == "File train.py, line 5, in step, model(batch)"


def test_frames_without_a_framework_enter_at_the_innermost() -> None:
    assert find_entering_frame(FRAMES[3:]) == "File train.py, line 5, in step, model(batch)"
    assert find_entering_frame(FRAMES[:1]) == "" and find_entering_frame(()) == ""
