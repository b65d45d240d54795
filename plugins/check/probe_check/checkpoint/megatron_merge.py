"""Merging of the ranks of a Megatron checkpoint (docs/checkpoints.md#megatron)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from probe_check.checkpoint.content import are_equal
from probe_check.checkpoint.errors import UnreadableCheckpoint
from probe_check.checkpoint.tensors import JoinedTensor, SlicedTensor, Tensor
from probe_core.errors import format_count
from probe_core.files.packaged import load_yaml

_LAYER_NAME = re.compile(r"^((?:decoder|encoder|.*?transformer|.*?model)\.layers\.)(\d{1,6})(\..*)$")


class ShardPosition(NamedTuple):
    """The position of a part of the model: its ranks, and its chunk of a virtual pipeline."""

    tensor_rank: int
    stage: int
    chunk: int
    expert_rank: int


@dataclass(frozen=True)
class MergedModel:
    """The tensors of a whole model, and sentences on what does not fit together."""

    tensors: Mapping[str, Tensor]
    remarks: tuple[str, ...]


def merge_ranks(path: Path, chunks: Mapping[ShardPosition, Mapping[str, Tensor]], *, is_gated: bool) -> MergedModel:
    """Return the tensors of the whole model.

    Args:
        path: The checkpoint, for messages.
        chunks: The tensors of each part of the model.
        is_gated: True if the first linear layer of an MLP contains a gate and a projection.

    Raises:
        UnreadableCheckpoint: The shapes of the ranks do not fit together.
    """
    core_tensors = {place: _rename_to_core(tensors) for place, tensors in chunks.items()}
    shifts = _compute_layer_shifts(core_tensors)
    parts: dict[str, dict[tuple[int, int], Tensor]] = defaultdict(dict)
    for place in sorted(core_tensors, key=lambda p: (p.chunk, p.stage, p.expert_rank, p.tensor_rank)):
        experts = _count_experts(core_tensors[place])
        for local_name, tensor in core_tensors[place].items():
            name = _compute_global_name(local_name, shifts[place.chunk, place.stage], place.expert_rank * experts)
            parts[name].setdefault((place.expert_rank, place.tensor_rank), tensor)
    merged: dict[str, Tensor] = {}
    unequal: list[str] = []
    for name, by_rank in parts.items():
        try:
            merged[name] = _merge(name, by_rank, unequal, is_gated=is_gated)
        except ValueError as error:
            raise UnreadableCheckpoint(path, f"cannot be merged: {name} {error}") from None
    return MergedModel(merged, _create_remarks(unequal))


def _create_remarks(unequal: Sequence[str]) -> tuple[str, ...]:
    if not unequal:
        return ()
    names = f"{format_count(len(unequal), 'tensor')} that all ranks share differ between them, such as {unequal[0]}"
    return (f"{names}; those of the first rank are compared.",)


def _rename_to_core(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by their names in Megatron core; of two with one name, the second keeps its own."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if any(re.search(pattern, name) for pattern in load_yaml(__package__, "megatron.yaml")["ignored"]):
            continue
        core = name.removeprefix("module.")
        for pattern, replacement in load_yaml(__package__, "megatron.yaml")["names"]:
            core = re.sub(pattern, replacement, core)
        renamed[name if core in renamed else core] = tensor
    return renamed


def _compute_layer_shifts(chunks: Mapping[ShardPosition, Mapping[str, Tensor]]) -> dict[tuple[int, int], int]:
    """Return the number of layers before each chunk and stage."""
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for place, tensors in chunks.items():
        key = place.chunk, place.stage
        indexes = [int(match[2]) + 1 for name in tensors if (match := _LAYER_NAME.match(name))]
        counts[key] = max([counts[key], *indexes])
    shifts, total = {}, 0
    for key in sorted(counts):
        shifts[key] = total
        total += counts[key]
    return shifts


def _count_experts(names: Iterable[str]) -> int:
    """Return the number of experts of a rank that have separate names."""
    indexes = [
        int(match[2]) + 1
        for name in names
        for pattern in load_yaml(__package__, "megatron.yaml")["expert_index"]
        if (match := re.search(pattern, name))
    ]
    return max(indexes, default=0)


def _compute_global_name(name: str, layer_shift: int, expert_shift: int) -> str:
    match = _LAYER_NAME.match(name)
    if match:
        name = f"{match[1]}{int(match[2]) + layer_shift}{match[3]}"
    for pattern in load_yaml(__package__, "megatron.yaml")["expert_index"]:
        name = re.sub(pattern, lambda m: f"{m[1]}{int(m[2]) + expert_shift}{m[3]}", name)
    return name


def _merge(name: str, by_rank: Mapping[tuple[int, int], Tensor], unequal: list[str], *, is_gated: bool) -> Tensor:
    """Return the whole tensor of the parts by expert-parallel and tensor-parallel rank.

    Raises:
        ValueError: The shapes do not fit together.
    """
    groups: dict[int, list[Tensor]] = defaultdict(list)
    for (expert_rank, _), tensor in sorted(by_rank.items()):
        groups[expert_rank].append(tensor)
    whole = [_merge_tensor_ranks(name, parts, unequal, is_gated=is_gated) for parts in groups.values()]
    dimension = _find_pattern(name, load_yaml(__package__, "megatron.yaml")["grouped_experts"])
    if dimension is not None and len(whole) > 1:
        return _join_tensors(whole, load_yaml(__package__, "megatron.yaml")["grouped_experts"][dimension])
    return whole[0]


def _merge_tensor_ranks(name: str, parts: list[Tensor], unequal: list[str], *, is_gated: bool) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    rules = load_yaml(__package__, "megatron.yaml")
    if _find_pattern(name, rules["column"]) is not None:
        if is_gated and _find_pattern(name, rules["gated"]) is not None and all(_is_even(part) for part in parts):
            halves = [part.shape[0] // 2 for part in parts]
            gates = [SlicedTensor(part, 0, half) for part, half in zip(parts, halves)]
            ups = [SlicedTensor(part, half, 2 * half) for part, half in zip(parts, halves)]
            return _join_tensors([*gates, *ups], 0)
        return _join_tensors(parts, 0)
    if _find_pattern(name, rules["row"]) is not None:
        return _join_tensors(parts, 1)
    if not all(are_equal(parts[0], part) for part in parts[1:]):
        unequal.append(name)
    return parts[0]


def _is_even(tensor: Tensor) -> bool:
    return bool(tensor.shape) and tensor.shape[0] % 2 == 0


def _join_tensors(parts: Sequence[Tensor], dimension: int) -> Tensor:
    shapes = {(*part.shape[:dimension], *part.shape[dimension + 1 :]) for part in parts}
    if any(len(part.shape) <= dimension for part in parts) or len(shapes) > 1:
        raise ValueError("has shapes that do not fit together")
    if len({part.element for part in parts}) > 1:
        raise ValueError("has different types on its ranks")
    return JoinedTensor(parts, dimension)


def _find_pattern(name: str, patterns: Iterable[str]) -> str | None:
    return next((pattern for pattern in patterns if re.search(pattern, name)), None)
