"""Calls from frames that imitate the script's line, and call stacks, compiled and in Python."""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from probe_pytorch.capture import callers
from probe_pytorch.capture.callers import wrap_with_caller
from probe_recording import sites
from probe_recording.api import stack_of
from probe_recording.sites import STAND_IN, Stack, list_stack_lines

try:
    from probe_pytorch import _frames
except ImportError:
    pytest.skip("the extension is not built", allow_module_level=True)


def run_deep(depth: int, function: Callable[[], Any]) -> Any:
    return run_deep(depth - 1, function) if depth else function()


def collect_stacks() -> tuple[Stack, Stack, Stack]:
    frame = sys._getframe(1)
    return stack_of(frame), stack_of(frame), sites._walk(frame)


@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_stack_of_returns_the_stack_that_python_collects(depth: int) -> None:
    first, second, python = run_deep(depth, collect_stacks)
    assert first is second and first is python
    assert len(first) > 2 * depth and "run_deep" in list_stack_lines(first)[0]


def names_of_frames() -> list[tuple[str, str, int | None]]:
    """Return file, name and line of the stand-ins around the call, innermost first."""
    frames = reversed(traceback.extract_stack()[:-1])
    stand_ins = itertools.takewhile(lambda frame: frame.name == STAND_IN, frames)
    return [(frame.filename, frame.name, frame.lineno) for frame in stand_ins]


@pytest.mark.parametrize("is_torch", [False, True])
def test_called_from_imitates_the_same_frames_as_python(is_torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "_sites", {})
    if is_torch:
        monkeypatch.setattr(callers, "TORCH_DIRECTORY", __file__)

    def call_both_ways() -> list[Any]:
        frame = sys._getframe(1)
        compiled = wrap_with_caller(frame, names_of_frames)()
        monkeypatch.setattr(callers, "_call_from", None)
        return [compiled, wrap_with_caller(frame, names_of_frames)()]

    compiled, python = run_deep(5, call_both_ways)
    assert compiled == python and len(compiled) == (callers.MAX_FRAMES if is_torch else 1)
    assert {file for file, _, _ in compiled} == {__file__}


def test_called_from_passes_arguments_and_exceptions_on() -> None:
    frame = sys._getframe()
    assert wrap_with_caller(frame, dict)([("a", 1)], b=2) == {"a": 1, "b": 2}
    with pytest.raises(ZeroDivisionError):
        wrap_with_caller(frame, lambda: 1 // 0)()
    assert wrap_with_caller(None, len)([1]) == 1


@pytest.mark.parametrize(
    "arguments",
    [(), (1, {}, len), (sys._getframe(), [], len), (sys._getframe(), {}, len, 1, 2, 3)],
    ids=["none", "no frame", "no dict", "too many"],
)
def test_wrong_arguments_raise_type_errors(arguments: tuple[Any, ...]) -> None:
    for function in (_frames.find_stack, _frames.call_from):
        with pytest.raises(TypeError):
            function(*arguments)


def test_a_site_must_have_the_code_of_an_imitation() -> None:
    with pytest.raises(TypeError, match="a site has"):
        _frames.call_from(sys._getframe(), len, {}, lambda frame: (1, 2, 3), 4)  # type: ignore[arg-type, return-value]
