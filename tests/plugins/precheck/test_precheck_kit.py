"""Helpers that runners of all frameworks share: recorded ranges, values and literals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from probe_precheck.api import (
    Call,
    NotRun,
    Unbuildable,
    make_file_name,
    read_range,
    rebuild_plain_value,
)
from probe_precheck.memory import get_max_input_bytes
from probe_precheck.model import format_one_line
from probe_precheck.rebuild import Range
from probe_precheck.rules import Rules
from probe_precheck.scripts import render_literal, render_script
from support.cases import every

inf, nan = math.inf, math.nan


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        ({"Max": 2, "Min": -1.5}, Range(-1.5, 2, -1.5, 2)),
        (
            {"Max": inf, "Min": 0, "Max_except_inf_nan": 3.0, "Min_except_inf_nan": None},
            Range(0, inf, 0, 3.0),
        ),
        ({"Max": 3.0, "Max_origin": inf, "Min": 1.0, "Min_origin": -inf}, Range(-inf, inf, 1.0, 3.0)),
    ],
)
def test_recorded_ranges(leaf: dict[str, Any], expected: Range) -> None:
    assert read_range(leaf) == expected


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ({}, "were not recorded"),
        ({"Max": 1.0, "Min": None}, "were not recorded"),
        ({"Max": "1", "Min": 0}, "were not recorded"),
        ({"Max": 10**400, "Min": 0}, "is outside the range of its dtype"),
    ],
)
def test_ranges_that_cannot_be_used(leaf: dict[str, Any], message: str) -> None:
    with pytest.raises(Unbuildable, match=message):
        read_range(leaf)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "slice", "value": [1, None, 2]}, slice(1, None, 2)),
        ({"type": "slice", "value": None}, slice(None)),
        ({"type": "ellipsis"}, ...),
        ({"type": "numpy.int16", "value": 3}, np.int16(3)),
        ({"type": "int", "value": 3}, 3),
        ({"type": "NoneType", "value": None}, None),
    ],
)
def test_values_that_mean_the_same_everywhere(item: dict[str, Any], expected: Any) -> None:
    found = rebuild_plain_value(item)
    assert found == expected and type(found) is type(expected)


def test_a_value_of_which_nothing_was_recorded() -> None:
    with pytest.raises(Unbuildable, match="An argument of type Mine cannot be rebuilt"):
        rebuild_plain_value({"type": "Mine"})


def own(value: Any, name: str) -> str | None:
    return f"load({name!r})" if isinstance(value, np.ndarray) else None


@every(
    "value",
    [1, -0.0, inf, nan, 1 + 2j, complex(nan, -inf), "a'b", None, True, ..., slice(1, 2), (), (1,), [(2.5, [inf])],
     {"a": (1,), 2: [None]}, np.float32(0.5), np.int8(3)],
)  # fmt: skip
def test_literals_make_the_same_value(value: Any) -> None:
    text = render_literal(value, "x", own)
    assert repr(eval(text)) == repr(value.item() if isinstance(value, np.generic) else value)


def test_tensors_in_containers_have_names_of_their_own() -> None:
    array = np.zeros(1)
    assert render_literal([array, {"a b": (array,)}], "x", own) == "[load('x.0'), {'a b': (load('x.1.a_b.0'),)}]"
    assert make_file_name("Torch.a/b c.0-1") == "Torch.a_b_c.0-1"


def test_marks_in_values_are_no_marks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kit_script_package").mkdir()
    (tmp_path / "kit_script_package" / "__init__.py").touch()
    (tmp_path / "kit_script_package" / "script.txt").write_text("@CALL@ @MINE@\n@ARGUMENTS@@KEYWORDS@")
    monkeypatch.syspath_prepend(tmp_path)
    text = render_script("kit_script_package", Call("Mine.op.0", 0, {}), ["@MINE@"], {"k": 1.5}, own, {"@MINE@": "m"})
    assert text == "Mine.op.0 m\n        '@MINE@',\n        'k': 1.5,\n"


def test_a_call_may_be_random() -> None:
    rules = Rules("probe_pytorch.precheck")
    assert rules.is_random("rrelu", {}) and rules.is_random("rrelu", {"training": True})
    assert not rules.is_random("rrelu", {"training": False}) and not rules.is_random("exp", {})


def test_errors_and_memory_in_brief() -> None:
    assert format_one_line(NotRun("a\n  b")) == "a b" and format_one_line(KeyError()) == "KeyError"
    assert len(format_one_line(ValueError("x" * 5000))) == 1000
    assert 1 << 20 < get_max_input_bytes() < 1 << 50
