"""Other iterations next to a checkpoint, in which a tensor that was not updated can be found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from probe_check.checkpoint.content import has_equal_content
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.opening import open_checkpoint
from probe_check.checkpoint.result import Match, Relation, TensorPair
from probe_core.errors import UserError

MAX_ITERATIONS = 4
_NUMBER = re.compile(r"\d+")


def open_other_iterations(checkpoint: Checkpoint, compared: Checkpoint) -> Iterator[tuple[str, Checkpoint]]:
    """Yield the names and contents of checkpoints of other iterations, the nearest earlier one first.

    Args:
        checkpoint: The checkpoint next to which they are.
        compared: The checkpoint that it is compared with, which is left out.

    The results are files and directories next to the checkpoint whose names differ in a number only, such as
    ``iter_0000010`` or ``checkpoint-500``. Those that cannot be read are left out.
    """
    compared_path = compared.path.resolve()
    siblings = [path for path in _find_siblings(checkpoint.path) if path.resolve() != compared_path]
    for path in siblings[:MAX_ITERATIONS]:
        try:
            yield path.name, open_checkpoint(path)
        except UserError:
            continue


def find_earlier_matches(pairs: Sequence[TensorPair], target: Checkpoint, golden: Checkpoint) -> list[TensorPair]:
    """Return the pairs; those that differ without an explanation with the iteration that they equal.

    A tensor of the target is compared with the tensor of the same name in other iterations of the golden
    checkpoint, and with that in earlier iterations of the target.
    """
    matches: dict[str, Match] = {}
    sides = (golden, target, Relation.EARLIER_ITERATION), (target, golden, Relation.UNCHANGED)
    for checkpoint, compared, relation in sides:
        for iteration, sibling in open_other_iterations(checkpoint, compared):
            for pair in pairs:
                if pair.is_equal or pair.match is not None or pair.name in matches:
                    continue
                name = pair.golden_name if relation is Relation.EARLIER_ITERATION else pair.name
                if name in sibling.tensors and has_equal_content(target.tensors[pair.name], sibling.tensors[name]):
                    matches[pair.name] = Match(relation, name, iteration)
    return [replace(pair, match=matches.get(pair.name, pair.match)) for pair in pairs]


def _find_siblings(path: Path) -> list[Path]:
    path = path.absolute()
    number = _parse_number(path)
    if number is None:
        return []
    stem = _NUMBER.sub("#", path.name)
    try:
        names = [child for child in path.parent.iterdir() if _NUMBER.sub("#", child.name) == stem]
    except OSError:
        return []
    siblings = [child for child in names if child.name != path.name and _parse_number(child) is not None]
    return sorted(siblings, key=lambda child: _compute_distance(number, _parse_number(child)))


def _parse_number(path: Path) -> int | None:
    """Return the last number in a name."""
    numbers = _NUMBER.findall(path.name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 16 else None


def _compute_distance(number: int, sibling_number: int | None) -> tuple[bool, int]:
    assert sibling_number is not None
    return sibling_number > number, abs(sibling_number - number)
