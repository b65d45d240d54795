"""A pack: what config-check collected of a training, or the conditions of a recorded run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from probe_diagnosis import RunConditions, parse_conditions

from probe_check.config_check.items import Item
from probe_check.config_check.source import Source, open_source
from probe_core.errors import UserError

HYPERPARAMETER_FILES = ("hyperparameters_static.json", "hyperparameters_dynamic.json")
STATISTICS = ("max", "min", "mean", "norm")
MAX_TREE_DEPTH = 50
"""Largest depth of nested inputs of a model."""
MAX_STACKS = 5000
"""Largest number of call stacks of a random function on a rank."""

Scalar = Union[None, bool, int, float, str]
Place = tuple[int, int]
"""The numbers of a step (forward call) and a rank."""

_PLACED = {
    Item.DATASET: re.compile(r"dataset/step(\d{1,9})/rank(\d{1,6})/dataset\.json"),
    Item.WEIGHTS: re.compile(r"weights/step(\d{1,9})/rank(\d{1,6})/weight\.json"),
    Item.CONDITIONS: re.compile(r"(?:step(\d{1,9})/)?(?:rank(\d{0,6})/)?conditions\.json"),
}
_RANDOM = re.compile(r"random/rank(\d{1,6})\.json")


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a tensor."""

    max: float
    min: float
    mean: float
    norm: float

    def values(self) -> tuple[float, float, float, float]:
        """Return the statistics in the order of the columns."""
        return self.max, self.min, self.mean, self.norm


Tree = Union[Statistics, Mapping[str, "Tree"], None]
"""Statistics of the inputs of a model, nested like these; None for what is no tensor."""


@dataclass(frozen=True, slots=True)
class RandomCalls:
    """Calls of a random function from one place of the program.

    Attributes:
        stack: The frames, outermost first.
        count: The number of calls.
    """

    stack: tuple[str, ...]
    count: int


class Pack:
    """The content of a pack, read when it is needed.

    Args:
        source: Its members.

    Attributes:
        path: Its path.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        names = sorted(source.names())
        self._names = frozenset(names)
        self._places = {item: _placed(names, pattern) for item, pattern in _PLACED.items()}
        self._random = {int(m[1]): m[0] for name in names if (m := _RANDOM.fullmatch(name))}

    def close(self) -> None:
        """Release the file."""
        self._source.close()

    def items(self) -> set[Item]:
        """Return the items in the pack."""
        found = {item for item, places in self._places.items() if places}
        found |= {Item.RANDOM} if self._random else set()
        found |= {Item.HYPERPARAMETERS} if self.hyperparameter_files() else set()
        return found | {item for item in (Item.ENVIRONMENT, Item.PACKAGES) if item.value in self._names}

    def members(self) -> list[str]:
        """Return the names of the members that are read, in order."""
        placed = [name for places in self._places.values() for name in places.values()]
        fixed = [name for name in ("env", "pip") if name in self._names]
        files = [f"hyperparameters/{name}" for name in self.hyperparameter_files()]
        return sorted([*placed, *fixed, *files, *self._random.values()])

    def content(self, name: str) -> bytes:
        """Return the content of a member."""
        return self._source.read(name)

    def variables(self) -> dict[str, str]:
        """Return the environment variables."""
        plain = self._object("env")
        return {name: value for name, value in plain.items() if isinstance(value, str)}

    def packages(self) -> dict[str, str]:
        """Return the versions of packages, by their names in the form of package indexes."""
        lines = self._text("pip").splitlines()
        pairs = (line.strip().partition("=")[::2] for line in lines if line.strip())
        return {index_name(name): version for name, version in pairs}

    def hyperparameter_files(self) -> list[str]:
        """Return the names of the files of hyper-parameters."""
        return [name for name in HYPERPARAMETER_FILES if f"hyperparameters/{name}" in self._names]

    def hyperparameters(self, file: str) -> dict[str, Scalar]:
        """Return the hyper-parameters in a file; lists and objects as texts."""
        return {name: _scalar(value) for name, value in self._object(f"hyperparameters/{file}").items()}

    def places(self, item: Item) -> list[Place]:
        """Return the steps and ranks of an item, in order."""
        return sorted(self._places[item])

    def weights(self, place: Place) -> dict[str, Statistics]:
        """Return the statistics of the weights at a forward call."""
        name = self._places[Item.WEIGHTS][place]
        found: dict[str, Statistics] = {}
        for weight, value in self._object(name).items():
            statistics = _statistics(value)
            if statistics is None:
                raise self._refused(name)
            found[weight] = statistics
        return found

    def inputs(self, place: Place) -> Tree:
        """Return the statistics of the inputs of the model at a forward call."""
        name = self._places[Item.DATASET][place]
        try:
            return _tree(self._object(name), 0)
        except RecursionError:
            raise self._refused(name) from None

    def ranks_with_random_calls(self) -> list[int]:
        """Return the ranks whose calls of random functions were collected."""
        return sorted(self._random)

    def random_calls(self, rank: int) -> dict[str, list[RandomCalls]]:
        """Return the calls of each random function of a rank; empty if they were not collected."""
        if rank not in self._random:
            return {}
        name = self._random[rank]
        found: dict[str, list[RandomCalls]] = {}
        for op, entries in self._object(name).items():
            if not isinstance(entries, list) or len(entries) > MAX_STACKS:
                raise self._refused(name)
            found[op] = [self._random_calls(name, entry) for entry in entries]
        return found

    def conditions(self, place: Place) -> RunConditions | None:
        """Return the conditions of a step and rank; None if they are damaged."""
        return parse_conditions(self._source.read(self._places[Item.CONDITIONS][place]))

    def _random_calls(self, name: str, entry: Any) -> RandomCalls:
        stack = entry.get("stack") if isinstance(entry, dict) else None
        count = entry.get("count") if isinstance(entry, dict) else None
        if not isinstance(stack, list) or not all(isinstance(frame, str) for frame in stack):
            raise self._refused(name)
        if not isinstance(count, int) or isinstance(count, bool):
            raise self._refused(name)
        return RandomCalls(tuple(stack), count)

    def _text(self, name: str) -> str:
        return self._source.read(name).decode("utf-8", "replace")

    def _object(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self._text(name))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._refused(name)
        return value

    def _refused(self, name: str) -> UserError:
        return UserError(
            f"{name} in {self.path} does not have the layout of a pack.",
            "Collect the pack again, by probe config-check -d or by ConfigChecker.",
        )


def index_name(name: str) -> str:
    """Return the name of a package in the form of package indexes, in which spellings do not matter."""
    return re.sub(r"[-_.]+", "-", name).lower()


def open_pack(path: Path) -> Pack:
    """Return a pack.

    Raises:
        UserError: The path is no pack and no recorded run.
    """
    return Pack(open_source(path))


def _placed(names: list[str], pattern: re.Pattern[str]) -> dict[Place, str]:
    """Return the members that match a pattern, by step and rank."""
    matches = [match for name in names if (match := pattern.fullmatch(name))]
    return {(int(match[1] or 0), int(match[2] or 0)): match[0] for match in matches}


def _scalar(value: Any) -> Scalar:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _statistics(value: Any) -> Statistics | None:
    """Return statistics; None if a value is something else."""
    if not isinstance(value, dict) or value.keys() != set(STATISTICS):
        return None
    numbers = [value[name] for name in STATISTICS]
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in numbers):
        return None
    try:
        return Statistics(*map(float, numbers))
    except OverflowError:
        return None


def _tree(value: Any, depth: int) -> Tree:
    """Return the statistics in nested inputs.

    Raises:
        RecursionError: They are nested too deeply.
    """
    if depth > MAX_TREE_DEPTH:
        raise RecursionError
    found = _statistics(value)
    if found is not None or not isinstance(value, dict):
        return found
    return {key: _tree(inner, depth + 1) for key, inner in value.items()}
