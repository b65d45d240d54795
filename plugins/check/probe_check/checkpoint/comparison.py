"""Comparison of two checkpoints (docs/checkpoints.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from probe_check.checkpoint.byte_source import close_files
from probe_check.checkpoint.content import ContentSearch
from probe_check.checkpoint.errors import UnreadableCheckpoint
from probe_check.checkpoint.measurement import measure
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.opening import open_checkpoint
from probe_check.checkpoint.result import CheckpointComparison, SettingPair, TensorPair
from probe_core import progress

WORK = "Comparing"


def compare_checkpoints(
    target: str | os.PathLike[str], golden: str | os.PathLike[str]
) -> CheckpointComparison:
    """Return what differs between two checkpoints; nothing in them is unpickled.

    Args:
        target: The checkpoint under test: a file or a directory of a supported format.
        golden: The reference.

    Raises:
        UserError: A checkpoint cannot be read, or no tensor can be compared.
    """
    try:
        return _compare(open_checkpoint(target), open_checkpoint(golden))
    finally:
        close_files()


def _compare(target: Checkpoint, golden: Checkpoint) -> CheckpointComparison:
    names = {name: name for name in target.tensors if name in golden.tensors}
    pairs = list(_measured(target, golden, names))
    target_only = [name for name in target.tensors if name not in names]
    golden_only = [name for name in golden.tensors if name not in names.values()]
    if target_only or golden_only or not all(pair.is_equal for pair in pairs):
        search = ContentSearch(target.tensors, golden.tensors)
        for name in [*target_only]:
            other = search.renamed(name, golden_only)
            if other is not None:
                target_only.remove(name)
                golden_only.remove(other)
                pairs += [replace(p, is_by_content=True) for p in _measured(target, golden, {name: other})]
        pairs = [
            pair if pair.is_equal else replace(pair, match=search.match(pair.name, pair.golden_name))
            for pair in pairs
        ]
    if not pairs:
        raise UnreadableCheckpoint(
            target.path,
            f"and {golden.path} have no tensor in common",
            "Map their names with --mapping, or give two checkpoints of one model.",
        )
    settings = tuple(_settings(target, golden))
    return CheckpointComparison(
        target, golden, tuple(pairs), tuple(target_only), tuple(golden_only), settings
    )


def _measured(target: Checkpoint, golden: Checkpoint, names: Mapping[str, str]) -> Iterator[TensorPair]:
    """Yield the compared pairs; one pair of tensors is in memory at a time."""
    total = sum(target.tensors[name].count for name in names)
    done = 0
    for name, golden_name in names.items():
        first, second = target.tensors[name], golden.tensors[golden_name]
        distance = measure(first, second) if first.shape == second.shape else None
        done += first.count
        progress.tell(WORK, done, total)
        yield TensorPair(
            name,
            golden_name,
            (first.shape, second.shape),
            (first.count, second.count),
            (first.element.name, second.element.name),
            distance,
        )


def _settings(target: Checkpoint, golden: Checkpoint) -> Iterator[SettingPair]:
    for name in dict.fromkeys((*target.settings, *golden.settings)):
        first, second = target.settings.get(name), golden.settings.get(name)
        if first != second:
            yield SettingPair(name, first, second)
