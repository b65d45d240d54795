"""Golden files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytest_probe.golden_file import Check, GoldenFile, Place, Section, parse_check, read_golden
from pytest_probe.step import Call, RecordedStep, Step, write_step
from support.cases import every

from probe_core.errors import UserError

VALUE = "float32[2] 1.0 0.0 0.5 1.0 #00000001"
CHECK = Check({"Torch.abs.0.forward": {"args": [VALUE], "output": ["#00000001"]}}, [], {}, {"00000001": 1e-6})
MEASURED = {"threads": [1, 2], "repetitions": 3}


def file_of(*places: Place) -> GoldenFile:
    return GoldenFile("test_it.py::test", tuple(Section(place, (CHECK,), MEASURED) for place in places))


def test_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = file_of(Place("cpu", "2.12.0"), Place("cpu", "2.13.0"))
    file.write(tmp_path / "a" / "golden.json")
    assert read_golden(tmp_path / "a" / "golden.json", "golden.json", "") == file
    lines = (tmp_path / "a" / "golden.json").read_text().splitlines()
    assert f'"Torch.abs.0.forward": {{"args":["{VALUE}"],"output":["#00000001"]}}' in lines


@every(
    "place, expected",
    [
        (Place("cpu", "2.13.0"), Place("cpu", "2.13.0")),
        (Place("cpu", "2.15.1"), Place("cpu", "2.14.0")),
        (Place("cpu", "2.1.0"), Place("cpu", "2.13.0")),
        (Place("cuda A", "2.14.0"), Place("cuda B", "2.10.0")),
        (Place("npu", "2.14.0"), Place("cpu", "2.14.0")),
    ],
)
def test_most_similar_section_is_used(place: Place, expected: Place) -> None:
    section = file_of(Place("cpu", "2.13.0"), Place("cpu", "2.14.0"), Place("cuda B", "2.10.0")).find(place)
    assert section is not None and section.place == expected


def test_only_the_section_of_a_place_is_replaced() -> None:
    file = file_of(Place("cpu", "2.13.0"), Place("cpu", "2.14.0"))
    new = Section(Place("cpu", "2.13.0"), ())
    assert file.replace(new).sections == (new, file.sections[1])
    assert [section.place for section in file_of(Place("cpu", "2.14.0")).replace(new).sections] == [
        Place("cpu", "2.13.0"), Place("cpu", "2.14.0"),
    ]  # fmt: skip


@every(
    "text, words",
    [
        ("<<<<<<< ours\n{}", "The golden file goldens/golden.json is not valid JSON"),
        ("{}", "golden.json has another format: expected"),
        ('{"probe_golden": 1}', "sections cannot be read"),
        (
            '{"probe_golden": 1, "sections": [{"device": "cpu", "torch": "2.13.0", "measured": {}, "checks": [[]]}]}',
            "sections",
        ),
    ],
)
def test_damaged_file_is_refused_with_the_fix(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "golden.json").write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_golden(tmp_path / "golden.json", "goldens/golden.json", "Restore it.")
    assert caught.value.fix == "Restore it."


def test_damaged_line_is_refused() -> None:
    with pytest.raises(UserError, match=r"The golden file a\.json is damaged: 'nonsense' is not the text of a tensor"):
        parse_check(Check({"Torch.abs.0.forward": {"args": ["nonsense"]}}), "a.json", "Restore it.")


def test_digest_shows_that_a_step_is_equal_and_depends_on_the_lines(tmp_path: Path) -> None:
    write_step(Step({"Torch.abs.0.forward": Call({"output": [None]})}), tmp_path)
    check = Check.from_step(RecordedStep(tmp_path))
    assert check.is_equal(RecordedStep(tmp_path)) and replace(check, digest="").is_equal(RecordedStep(tmp_path))
    assert not replace(check, calls={}).is_equal(RecordedStep(tmp_path))
