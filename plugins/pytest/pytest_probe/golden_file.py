"""The golden file of a test: for each device and version of torch, the checks of the test (docs/pytest.md#files)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64_hexdigest

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text
from probe_core.files.user_files import load_object
from pytest_probe.step import RecordedStep, Step
from pytest_probe.step_text import format_step, parse_step
from pytest_probe.value_text import ValueTextError

FORMAT = 1
"""The number of the format."""

_encode_line = json.JSONEncoder(separators=(",", ":")).encode


class Place(NamedTuple):
    """The device and the version of torch that a section of a golden file is for."""

    device: str
    torch: str

    def __str__(self) -> str:
        return f"{self.device}, torch {self.torch}"

    def distance_to(self, place: Place) -> tuple[int, ...]:
        """Return a sort key, which is smaller the more likely both places compute equal values."""
        kinds = [device.partition(" ")[0] for device in (self.device, place.device)]
        versions = [_parse_version(version) for version in (self.torch, place.torch)]
        steps = [abs(number - place_number) for number, place_number in zip(*versions)]
        return (kinds[0] != kinds[1], self.device != place.device, *steps)


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a test in a golden file.

    Attributes:
        calls: The lines of the calls by their keys.
        phases: The lines of the phases of a training step.
        notes: The notes of the recorder on the whole step.
        spread: The largest relative difference between repetitions, by the checksum of the value.
        digest: A hash of the recorded step and of the lines; empty if it is not known.
    """

    calls: Mapping[str, Any]
    phases: Sequence[Mapping[str, Any]] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def from_step(cls, recorded: RecordedStep, spread: Mapping[str, float] | None = None) -> Check:
        """Return the check of a recorded step."""
        check = cls(*format_step(recorded.step), recorded.step.notes, spread or {})
        return replace(check, digest=check._compute_digest(recorded))

    def is_equal(self, recorded: RecordedStep) -> bool:
        """Return True if a recorded step contains the same calls in the same order with the same values.

        The digest shows it without a comparison of the lines, which takes longer than the recording of a small model.
        """
        if self.digest and self.digest == self._compute_digest(recorded):
            return True
        calls, phases = format_step(recorded.step)
        return self.calls == calls and self.phases == phases and [*self.calls] == [*calls]

    def _compute_digest(self, recorded: RecordedStep) -> str:
        lines = json.dumps([self.calls, self.phases])
        return xxh3_64_hexdigest(f"{recorded.digest}{lines}".encode())

    def parse(self) -> Step:
        """Return the step.

        Raises:
            ValueTextError: A line is not valid.
        """
        return replace(parse_step(self.calls, self.phases), notes=self.notes)


@dataclass(frozen=True, slots=True)
class Section:
    """The checks of a test at one place.

    Attributes:
        measured: How the spread was measured: the numbers of threads, and the number of data sets.
    """

    place: Place
    checks: tuple[Check, ...]
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """The golden file of a test."""

    test: str
    sections: tuple[Section, ...] = ()

    def find(self, place: Place) -> Section | None:
        """Return the section of a place, or of the most similar place; None if there are no sections."""
        return min(self.sections, key=lambda section: section.place.distance_to(place), default=None)

    def replace(self, section: Section) -> GoldenFile:
        """Return the file with a section that replaces the section of the same place."""
        others = [candidate for candidate in self.sections if candidate.place != section.place]
        return GoldenFile(self.test, tuple(sorted([*others, section], key=lambda section: section.place)))

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            UserError: It cannot be written.
        """
        make_directory(path.parent)
        write_text(path, "\n".join(self._format_lines()) + "\n")

    def _format_lines(self) -> Iterator[str]:
        yield f'{{"probe_golden": {FORMAT},'
        yield f'"test": {json.dumps(self.test)},'
        yield '"sections": ['
        for number, section in enumerate(self.sections, 1):
            yield f'{{"device": {json.dumps(section.place.device)}, "torch": {json.dumps(section.place.torch)},'
            yield f'"measured": {json.dumps(section.measured)},'
            yield '"checks": ['
            for place, check in enumerate(section.checks, 1):
                yield f'{{"notes": {json.dumps(check.notes)},'
                yield f'"spread": {json.dumps(check.spread)},'
                yield f'"digest": {json.dumps(check.digest)},'
                yield '"calls": {'
                yield ",\n".join(f"{json.dumps(key)}: {_encode_line(line)}" for key, line in check.calls.items())
                yield "},"
                yield '"phases": ['
                yield ",\n".join(map(_encode_line, check.phases))
                yield "]}" + _comma(place, section.checks)
            yield "]}" + _comma(number, self.sections)
        yield "]}"


def read_golden(path: Path, shown_path: str, fix: str) -> GoldenFile:
    """Return the golden file at a path.

    Args:
        path: The file.
        shown_path: The path as messages show it.
        fix: The sentence on how to write the file anew.

    Raises:
        UserError: It cannot be read, or is no golden file.
    """
    try:
        content = load_object(path, "golden file")
    except UserError as error:
        raise UserError(error.what.replace(str(path), shown_path), fix) from None
    if content.get("probe_golden") != FORMAT:
        problem = f'The golden file {shown_path} has another format: expected "probe_golden": {FORMAT}.'
        raise UserError(problem, fix)
    try:
        sections = tuple(map(_parse_section, content["sections"]))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UserError(f"The golden file {shown_path} is damaged: its sections cannot be read.", fix) from None
    return GoldenFile(str(content.get("test", "")), sections)


def parse_check(check: Check, path: str, fix: str) -> Step:
    """Return the step of a check.

    Raises:
        UserError: A line of the file is not valid.
    """
    try:
        return check.parse()
    except ValueTextError as error:
        raise UserError(f"The golden file {path} is damaged: {error}.", fix) from None


def _parse_section(plain: Mapping[str, Any]) -> Section:
    place = Place(str(plain["device"]), str(plain["torch"]))
    return Section(place, tuple(map(_parse_check, plain["checks"])), dict(plain["measured"]))


def _parse_check(plain: Mapping[str, Any]) -> Check:
    spread = {str(checksum): float(size) for checksum, size in plain["spread"].items()}
    phases = [dict(phase) for phase in plain["phases"]]
    return Check(dict(plain["calls"]), phases, dict(plain["notes"]), spread, str(plain.get("digest", "")))


def _parse_version(text: str) -> list[int]:
    numbers = [int(number) for number in re.findall(r"\d+", text)[:3]]
    return numbers + [0] * (3 - len(numbers))


def _comma(number: int, items: Sequence[object]) -> str:
    return "" if number == len(items) else ","
