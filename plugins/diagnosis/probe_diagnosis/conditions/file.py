"""Reader of ``conditions.json``, the conditions of a recorded step (docs/formats.md#conditions-json)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from probe_core.files.user_files import read_regular_file
from probe_core.store.files import CONDITIONS_FILE

SCHEMA = 1

Fact = Union[None, bool, int, float, str]


@dataclass(frozen=True, slots=True)
class RandomSample:
    """The states of random number generators at one point of a step.

    Attributes:
        point: ``start``, ``forward`` (the first call of a model) or ``end``.
        states: The hash of the state of each generator, by its name.
        seeds: The random seed that was set last, of each generator that reports it.
    """

    point: str
    states: Mapping[str, str]
    seeds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RandomDraw:
    """A call that drew random numbers.

    Attributes:
        op: The key of the call.
        generator: The name of the generator.
        before: The hash of its state before the call.
        after: The hash of its state after the call.
    """

    op: str
    generator: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RunConditions:
    """The conditions of one step and rank of a run.

    Attributes:
        facts: Values by the names of a group and of the fact, such as ``versions`` and ``torch``.
        samples: The states of random number generators, in the order of time.
        draws: The calls that drew random numbers, in the order of time.
        batch: Dtype, shape and hash of each tensor that the first model received, by its place.
        framework: The framework of the run; empty if it is not known.
    """

    facts: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    samples: tuple[RandomSample, ...] = ()
    draws: tuple[RandomDraw, ...] = ()
    batch: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""

    def sample(self, point: str) -> RandomSample | None:
        """Return the states at a point; None if they were not recorded."""
        return next((sample for sample in self.samples if sample.point == point), None)


def read_conditions(directory: Path) -> RunConditions | None:
    """Return the conditions of a step and rank; None if none can be read."""
    try:
        return parse_conditions(read_regular_file(directory / CONDITIONS_FILE))
    except (OSError, ValueError):
        return None


def parse_conditions(data: bytes) -> RunConditions | None:
    """Return the conditions in the content of a file; None if it is damaged or of another version."""
    try:
        plain = json.loads(data.decode("utf-8"))
        if plain["schema"] != SCHEMA:
            return None
        return RunConditions(
            {str(group): _parse_facts(facts) for group, facts in plain["facts"].items()},
            tuple(_parse_sample(sample) for sample in plain["random"]),
            tuple(RandomDraw(*map(_check_text, draw)) for draw in plain["draws"]),
            {str(name): _check_text(value) for name, value in plain["batch"].items()},
            _check_text(plain.get("framework", "")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _parse_facts(plain: Mapping[str, Any]) -> dict[str, Fact]:
    for value in plain.values():
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise TypeError("no fact")
    return {str(name): value for name, value in plain.items()}


def _parse_sample(plain: Mapping[str, Any]) -> RandomSample:
    states = {str(name): _check_text(value) for name, value in plain["states"].items()}
    return RandomSample(_check_text(plain["point"]), states, {str(k): int(v) for k, v in plain["seeds"].items()})


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value
