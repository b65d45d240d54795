"""Cases in a loop: each is run, each that fails is named, and fixtures arrive."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cases import every

ran: list[tuple[int, str]] = []


@every("number", [1, 2, 3])
@every("letter", "ab")
def test_a_product_of_cases(number: int, letter: str, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    ran.append((number, letter))


def test_each_was_run_once() -> None:
    ran.clear()
    test_a_product_of_cases(tmp_path=Path("/"))
    assert sorted(ran) == [(number, letter) for number in (1, 2, 3) for letter in "ab"]


@pytest.mark.parametrize("ids", [None, ["one", "two", "three"], lambda value: f"n{value}"])
def test_all_that_fail_are_named(ids: object) -> None:
    @every("number, half", [(1, 0.5), (2, 1.0), (3, 1.5)], ids=ids)
    def odd_ones_fail(number: int, half: float) -> None:
        assert number % 2 == 0, f"{half} is no whole number"

    with pytest.raises(AssertionError, match=r"(?s)2 of 3 cases failed:.*0\.5 is no.*1\.5 is no") as raised:
        odd_ones_fail()
    names = {None: "[1-0.5]", "list": "[one]"}.get(ids if ids is None else type(ids).__name__, "[n1-n0.5]")  # type: ignore[call-overload]
    assert names in str(raised.value) and "[2" not in str(raised.value)


def test_interrupts_are_not_held_back() -> None:
    @every("number", [1])
    def interrupted(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_no_cases_and_other_arguments_are_mistakes() -> None:
    with pytest.raises(AssertionError):
        every("number", [])
    with pytest.raises(AssertionError, match="other arguments"):
        every("letter", "ab")(lambda number: None)
