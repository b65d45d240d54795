"""Distances of values are said with what they are relative to."""

from __future__ import annotations

from typing import Any

from probe_diagnosis.suspects import Suspects

from probe_core.model import Drift


class _Row:
    """The part of a row that the search for drifting calls looks at."""


def test_a_distance_has_its_unit() -> None:
    row: Any = _Row()
    noise = {"noise": 1e-4, "jump": 10.0}
    inputs, outputs = [(row, "2", Drift(1.2, 1.0, **noise))], [(row, "3", Drift(30.0, 1.0, **noise))]
    suspects = Suspects()
    suspects._noise = 1e-4
    assert suspects._first_apart(inputs, [])[2] == (  # type: ignore[index]
        "is an input that differs by 1.2 of the golden's root mean square, where rounding explains 0.0001; "
        "no earlier call is a suspect"
    )
    suspects._drifting.append(row)
    assert suspects._first_apart(inputs, outputs)[2] == (  # type: ignore[index]
        "differs by 30 of the golden's root mean square, where rounding explains 0.0001, "
        "and its inputs differ by 1.2"
    )
