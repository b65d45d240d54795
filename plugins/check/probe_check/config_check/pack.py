"""A pack: what config-check collected of a training, or the conditions of a recorded run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from probe_diagnosis.conditions.file import RunConditions, parse_conditions

from probe_check.config_check.items import PackItem
from probe_check.config_check.source import PackSource, open_source
from probe_core.errors import UserError

HYPERPARAMETER_FILES = ("hyperparameters_static.json", "hyperparameters_dynamic.json")
STATISTICS = ("max", "min", "mean", "norm")
MAX_TREE_DEPTH = 50
"""Largest depth of nested inputs of a model."""
MAX_STACKS = 5000
"""Largest number of call stacks of a random function on a rank."""

Scalar = Union[None, bool, int, float, str]
StepRank = tuple[int, int]
"""The numbers of a step (forward call) and a rank."""

_PLACE_PATTERNS = {
    PackItem.DATASET: re.compile(r"dataset/step(\d{1,9})/rank(\d{1,6})/dataset\.json"),
    PackItem.WEIGHTS: re.compile(r"weights/step(\d{1,9})/rank(\d{1,6})/weight\.json"),
    PackItem.CONDITIONS: re.compile(r"(?:step(\d{1,9})/)?(?:rank(\d{0,6})/)?conditions\.json"),
}
_RANDOM_PATTERN = re.compile(r"random/rank(\d{1,6})\.json")


@dataclass(frozen=True, slots=True)
class PackStatistics:
    """Statistics of a tensor."""

    max: float
    min: float
    mean: float
    norm: float

    def values(self) -> tuple[float, float, float, float]:
        """Return the statistics in the order of the columns."""
        return self.max, self.min, self.mean, self.norm


Tree = Union[PackStatistics, Mapping[str, "Tree"], None]
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

    def __init__(self, source: PackSource) -> None:
        self._source = source
        self.path = source.path
        names = sorted(source.list_names())
        self._names = frozenset(names)
        self._places = {item: _index_members(names, pattern) for item, pattern in _PLACE_PATTERNS.items()}
        self._random = {int(m[1]): m[0] for name in names if (m := _RANDOM_PATTERN.fullmatch(name))}

    def close(self) -> None:
        """Release the file."""
        self._source.close()

    def list_items(self) -> set[PackItem]:
        """Return the items in the pack."""
        items = {item for item, places in self._places.items() if places}
        items |= {PackItem.RANDOM} if self._random else set()
        items |= {PackItem.HYPERPARAMETERS} if self.list_hyperparameter_files() else set()
        return items | {item for item in (PackItem.ENVIRONMENT, PackItem.PACKAGES) if item.value in self._names}

    def list_members(self) -> list[str]:
        """Return the names of the members that are read, in order."""
        placed = [name for places in self._places.values() for name in places.values()]
        fixed = [name for name in ("env", "pip") if name in self._names]
        files = [f"hyperparameters/{name}" for name in self.list_hyperparameter_files()]
        return sorted([*placed, *fixed, *files, *self._random.values()])

    def read_content(self, name: str) -> bytes:
        """Return the content of a member."""
        return self._source.read(name)

    def read_variables(self) -> dict[str, str]:
        """Return the environment variables."""
        plain = self._read_object("env")
        return {name: value for name, value in plain.items() if isinstance(value, str)}

    def read_packages(self) -> dict[str, str]:
        """Return the versions of packages, by their names in the form of package indexes."""
        lines = self._read_text("pip").splitlines()
        pairs = (line.strip().partition("=")[::2] for line in lines if line.strip())
        return {normalize_package_name(name): version for name, version in pairs}

    def list_hyperparameter_files(self) -> list[str]:
        """Return the names of the files of hyper-parameters."""
        return [name for name in HYPERPARAMETER_FILES if f"hyperparameters/{name}" in self._names]

    def read_hyperparameters(self, file: str) -> dict[str, Scalar]:
        """Return the hyper-parameters in a file; lists and objects as texts."""
        return {name: _convert_to_scalar(value) for name, value in self._read_object(f"hyperparameters/{file}").items()}

    def list_places(self, item: PackItem) -> list[StepRank]:
        """Return the steps and ranks of an item, in order."""
        return sorted(self._places[item])

    def read_weights(self, place: StepRank) -> dict[str, PackStatistics]:
        """Return the statistics of the weights at a forward call."""
        name = self._places[PackItem.WEIGHTS][place]
        weights: dict[str, PackStatistics] = {}
        for weight, value in self._read_object(name).items():
            statistics = _parse_statistics(value)
            if statistics is None:
                raise self._create_layout_error(name)
            weights[weight] = statistics
        return weights

    def read_inputs(self, place: StepRank) -> Tree:
        """Return the statistics of the inputs of the model at a forward call."""
        name = self._places[PackItem.DATASET][place]
        try:
            return _parse_tree(self._read_object(name), 0)
        except RecursionError:
            raise self._create_layout_error(name) from None

    def list_random_ranks(self) -> list[int]:
        """Return the ranks whose calls of random functions were collected."""
        return sorted(self._random)

    def read_random_calls(self, rank: int) -> dict[str, list[RandomCalls]]:
        """Return the calls of each random function of a rank; empty if they were not collected."""
        if rank not in self._random:
            return {}
        name = self._random[rank]
        calls: dict[str, list[RandomCalls]] = {}
        for op, entries in self._read_object(name).items():
            if not isinstance(entries, list) or len(entries) > MAX_STACKS:
                raise self._create_layout_error(name)
            calls[op] = [self._parse_random_calls(name, entry) for entry in entries]
        return calls

    def read_conditions(self, place: StepRank) -> RunConditions | None:
        """Return the conditions of a step and rank; None if they are damaged."""
        return parse_conditions(self._source.read(self._places[PackItem.CONDITIONS][place]))

    def _parse_random_calls(self, name: str, entry: Any) -> RandomCalls:
        stack = entry.get("stack") if isinstance(entry, dict) else None
        count = entry.get("count") if isinstance(entry, dict) else None
        if not isinstance(stack, list) or not all(isinstance(frame, str) for frame in stack):
            raise self._create_layout_error(name)
        if not isinstance(count, int) or isinstance(count, bool):
            raise self._create_layout_error(name)
        return RandomCalls(tuple(stack), count)

    def _read_text(self, name: str) -> str:
        return self._source.read(name).decode("utf-8", "replace")

    def _read_object(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self._read_text(name))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._create_layout_error(name)
        return value

    def _create_layout_error(self, name: str) -> UserError:
        return UserError(
            f"{name} in {self.path} does not have the layout of a pack.",
            "Collect the pack again, by probe config-check -d or by ConfigChecker.",
        )


def normalize_package_name(name: str) -> str:
    """Return the name of a package in the form of package indexes, in which spellings do not matter."""
    return re.sub(r"[-_.]+", "-", name).lower()


def open_pack(path: Path) -> Pack:
    """Return a pack.

    Raises:
        UserError: The path is no pack and no recorded run.
    """
    return Pack(open_source(path))


def _index_members(names: list[str], pattern: re.Pattern[str]) -> dict[StepRank, str]:
    """Return the members that match a pattern, by step and rank."""
    matches = [match for name in names if (match := pattern.fullmatch(name))]
    return {(int(match[1] or 0), int(match[2] or 0)): match[0] for match in matches}


def _convert_to_scalar(value: Any) -> Scalar:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _parse_statistics(value: Any) -> PackStatistics | None:
    """Return statistics; None if a value is something else."""
    if not isinstance(value, dict) or value.keys() != set(STATISTICS):
        return None
    numbers = [value[name] for name in STATISTICS]
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
        return None
    try:
        return PackStatistics(*map(float, numbers))
    except OverflowError:
        return None


def _parse_tree(value: Any, depth: int) -> Tree:
    """Return the statistics in nested inputs.

    Raises:
        RecursionError: They are nested too deeply.
    """
    if depth > MAX_TREE_DEPTH:
        raise RecursionError
    statistics = _parse_statistics(value)
    if statistics is not None or not isinstance(value, dict):
        return statistics
    return {key: _parse_tree(inner, depth + 1) for key, inner in value.items()}
