"""Comparison of two checkpoints (docs/checkpoints.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from probe_check.checkpoint import sentences
from probe_check.checkpoint.byte_source import close_files
from probe_check.checkpoint.content import ContentSearch, has_equal_content
from probe_check.checkpoint.errors import UnreadableCheckpoint
from probe_check.checkpoint.measurement import measure_distance
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.opening import open_checkpoint
from probe_check.checkpoint.optimizer import is_group_member
from probe_check.checkpoint.pairing import pair_names, read_mapping
from probe_check.checkpoint.result import CheckpointComparison, Match, Relation, SettingPair, TensorPair
from probe_core import progress
from probe_core.errors import UserError

PROGRESS_LABEL = "Comparing"


def compare_checkpoints(
    target: str | os.PathLike[str],
    golden: str | os.PathLike[str],
    mapping: str | os.PathLike[str] | Mapping[str, str] | None = None,
) -> CheckpointComparison:
    """Return what differs between two checkpoints; nothing in them is unpickled.

    Args:
        target: The checkpoint under test: a file or a directory of a supported format.
        golden: The reference.
        mapping: Names of the target, or parts of them, with those of the golden checkpoint; or the path of a
            yaml file that contains them.

    Raises:
        UserError: A checkpoint cannot be read, or no tensor can be compared.
    """
    try:
        names = read_mapping(Path(mapping)) if isinstance(mapping, (str, os.PathLike)) else mapping
        return _compare(open_checkpoint(target), open_checkpoint(golden), names)
    finally:
        close_files()


def _compare(target: Checkpoint, golden: Checkpoint, mapping: Mapping[str, str] | None) -> CheckpointComparison:
    names = pair_names(target.tensors, golden.tensors, mapping)
    pairs = list(_measure_pairs(target, golden, names))
    partners = set(names.values())
    target_only = [name for name in target.tensors if name not in names]
    golden_only = [name for name in golden.tensors if name not in partners]
    if target_only or golden_only or not all(pair.is_equal for pair in pairs):
        search = ContentSearch(target.tensors, golden.tensors)
        renamed = search.find_renamed(target_only, golden_only)
        pairs += [replace(pair, is_by_content=True) for pair in _measure_pairs(target, golden, renamed)]
        target_only = [name for name in target_only if name not in renamed]
        golden_only = [name for name in golden_only if name not in renamed.values()]
        pairs = list(_add_matches(pairs, search))
        pairs = find_earlier_matches(pairs, target, golden)
    if not pairs:
        raise _create_no_pair_error(target, golden)
    differing_settings = tuple(_compare_settings(target, golden))
    comparison = CheckpointComparison(
        target, golden, tuple(pairs), tuple(target_only), tuple(golden_only), differing_settings
    )
    return replace(comparison, sentence=sentences.format_verdict(comparison))


def _create_no_pair_error(target: Checkpoint, golden: Checkpoint) -> UserError:
    """Return the error of two checkpoints without a pair; the reason may be in one of them."""
    for checkpoint in (target, golden):
        for name, why in checkpoint.unreadable.items():
            return UnreadableCheckpoint(checkpoint.path, f"has no tensor that can be compared: {name} {why}")
        if not checkpoint.tensors:
            return UnreadableCheckpoint(checkpoint.path, "holds no tensor")
    return UserError(
        f"{target.path} and {golden.path} have no tensor in common.",
        "Map their names with --mapping, or give two checkpoints of one model.",
    )


def _add_matches(pairs: Iterable[TensorPair], search: ContentSearch) -> Iterator[TensorPair]:
    """Yield the pairs; those that differ with the tensor they were exchanged with."""
    for pair in pairs:
        yield pair if pair.is_equal else replace(pair, match=search.find_match(pair.name, pair.golden_name))


def _measure_pairs(target: Checkpoint, golden: Checkpoint, names: Mapping[str, str]) -> Iterator[TensorPair]:
    """Yield the compared pairs; one pair of tensors is in memory at a time."""
    total = sum(target.tensors[name].count for name in names)
    done = 0
    for name, golden_name in names.items():
        first, second = target.tensors[name], golden.tensors[golden_name]
        distance = measure_distance(first, second) if first.shape == second.shape else None
        done += first.count
        progress.report_progress(PROGRESS_LABEL, done, total)
        yield TensorPair(
            name,
            golden_name,
            (first.shape, second.shape),
            (first.count, second.count),
            (first.element.name, second.element.name),
            distance,
        )


def _compare_settings(target: Checkpoint, golden: Checkpoint) -> Iterator[SettingPair]:
    for name in dict.fromkeys((*target.settings, *golden.settings)):
        if is_group_member(name):
            continue
        first, second = target.settings.get(name), golden.settings.get(name)
        if first != second and (first == first or second == second):  # NaN equals NaN
            yield SettingPair(name, first, second)


# -- other iterations next to a checkpoint, in which a tensor that was not updated can be found -----


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
