"""Checkpoints of Megatron, whose ranks are merged into one model (docs/checkpoints.md#megatron)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.checkpoint_pickle import OpaqueObject
from probe_check.checkpoint.errors import UnreadableCheckpoint
from probe_check.checkpoint.megatron_merge import ShardPosition, merge_ranks
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.tensors import Tensor
from probe_check.checkpoint.torch_checkpoint import create_checkpoint, open_torch, rename_optimizer_key
from probe_core.files.packaged import load_yaml

LATEST_FILE = "latest_checkpointed_iteration.txt"
_RANK_NAME = re.compile(r"mp_rank_(\d{2,4})(?:_(\d{3,4}))?(?:_(\d{3,4}))?")
_CHUNK_NAME = re.compile(r"model(\d{0,4})")
MAX_PARALLEL_SIZE = 100_000


def find_iteration_directory(path: Path) -> Path:
    """Return the directory of the iteration that ``latest_checkpointed_iteration.txt`` names.

    Raises:
        UnreadableCheckpoint: The file or the directory is damaged.
    """
    file = path / LATEST_FILE
    source = ByteSource.from_path(file)
    text = bytes(source.read(0, min(source.size, 100))).decode("ascii", "replace").strip()
    if not re.fullmatch(r"\d{1,12}|release", text):
        raise UnreadableCheckpoint(file, "holds no number of an iteration", "Give the directory of an iteration.")
    directory = path / (text if text == "release" else f"iter_{int(text):07d}")
    if not directory.is_dir():
        raise UnreadableCheckpoint(
            file, f"names the iteration {text}, which is missing", "Give the directory of an iteration."
        )
    return directory


def has_ranks(path: Path) -> bool:
    """Return True for a directory of an iteration that contains a directory for each rank."""
    return any(_RANK_NAME.fullmatch(child.name) and child.is_dir() for child in path.iterdir())


@dataclass(frozen=True)
class _RankFile:
    """The content of a rank.

    Attributes:
        place: The tensor-parallel rank, the pipeline stage and the expert-parallel rank.
        chunks: The chunks of the model.
        others: All other content.
        sizes: The arguments of the training, with the parallel sizes.
    """

    place: tuple[int, int, int]
    chunks: tuple[Checkpoint, ...]
    others: Checkpoint
    sizes: Mapping[str, Any]


def read_megatron(path: Path) -> Checkpoint:
    """Return the merged tensors of all ranks of an iteration.

    Raises:
        UnreadableCheckpoint: A rank is missing or damaged.
    """
    directories = sorted(child for child in path.iterdir() if _RANK_NAME.fullmatch(child.name) and child.is_dir())
    ranks = [_read_rank(directory) for directory in directories]
    _check_complete(path, ranks)
    chunks: dict[ShardPosition, Mapping[str, Tensor]] = {}
    unreadable: dict[str, str] = {}
    for rank in ranks:
        for number, chunk in enumerate(rank.chunks):
            tensor_rank, stage, expert_rank = rank.place
            chunks[ShardPosition(tensor_rank, stage, number, expert_rank)] = chunk.tensors
            unreadable.update(chunk.unreadable)
    merged = merge_ranks(path, chunks, is_gated=ranks[0].sizes.get("swiglu") is True)
    tensors = dict(merged.tensors)
    for directory, rank in zip(directories, ranks):
        prefix = f"{directory.name}." if len(ranks) > 1 else ""
        tensors.update({prefix + name: tensor for name, tensor in rank.others.tensors.items()})
        unreadable.update(rank.others.unreadable)
    return Checkpoint(path, tensors, ranks[0].others.settings, unreadable, merged.remarks)


def _read_rank(directory: Path) -> _RankFile:
    files = load_yaml(__package__, "megatron.yaml")["files"]
    names = [name for name in files if (directory / name).exists()]
    if not names:
        raise UnreadableCheckpoint(directory, f"lacks {files[0]}")
    path = directory / names[0]
    file = open_torch(path)
    content = file.read_content()
    if not isinstance(content, dict):
        raise UnreadableCheckpoint(path, "is no checkpoint of Megatron: it holds no dict")
    models = {key: value for key, value in content.items() if _CHUNK_NAME.fullmatch(str(key))}
    if not models:
        raise UnreadableCheckpoint(path, "is no checkpoint of Megatron: it has no model")
    keys = sorted(models, key=lambda key: int(str(key)[5:] or 0))
    others = {key: value for key, value in content.items() if key not in models}
    chunks = tuple(create_checkpoint(path, file, models[key]) for key in keys)
    rest = create_checkpoint(path, file, rename_optimizer_key(others))
    return _RankFile(
        _parse_place(directory, _get_arguments(content)),
        chunks,
        _add_optimizer_states(directory, rest),
        _get_arguments(content),
    )


def _add_optimizer_states(directory: Path, others: Checkpoint) -> Checkpoint:
    """Return the checkpoint extended by the states in the files of a distributed optimizer."""
    tensors, unreadable = dict(others.tensors), dict(others.unreadable)
    for name in load_yaml(__package__, "megatron.yaml")["optimizer_files"]:
        path = directory / name
        if path.exists():
            file = open_torch(path)
            states = create_checkpoint(path, file, {path.stem: file.read_content()})
            tensors.update(states.tensors)
            unreadable.update(states.unreadable)
    return Checkpoint(others.path, tensors, others.settings, unreadable)


def _get_arguments(content: Mapping[Any, Any]) -> Mapping[str, Any]:
    arguments = content.get("args")
    return arguments.state if isinstance(arguments, OpaqueObject) else {}


def _parse_place(directory: Path, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the tensor-parallel rank, the pipeline stage and the expert-parallel rank of a directory.

    A single number after the first one is the pipeline stage, unless the arguments state that there is
    only one stage.
    """
    match = _RANK_NAME.fullmatch(directory.name)
    assert match is not None
    first, second, third = (int(number) if number else 0 for number in match.groups())
    if match[2] and not match[3]:
        stages, experts = (arguments.get(f"{kind}_model_parallel_size") for kind in ("pipeline", "expert"))
        if stages == 1 and isinstance(experts, int) and experts > 1:
            return first, 0, second
    return first, second, third


def _check_complete(path: Path, ranks: list[_RankFile]) -> None:
    """Check that there is a directory for each combination of ranks, and that chunks agree."""
    places = {rank.place for rank in ranks}
    sizes = [max(place[axis] for place in places) + 1 for axis in range(3)]
    for axis, kind in enumerate(("tensor", "pipeline", "expert")):
        size = ranks[0].sizes.get(f"{kind}_model_parallel_size")
        if isinstance(size, int) and sizes[axis] < size <= MAX_PARALLEL_SIZE:
            raise UnreadableCheckpoint(path, f"lacks ranks: it has {sizes[axis]} of {size} {kind}-parallel ranks")
    count = sizes[0] * sizes[1] * sizes[2]
    if len(places) != count:
        raise UnreadableCheckpoint(path, f"lacks ranks: it has {len(places)} of {count}")
    if len({len(rank.chunks) for rank in ranks}) > 1:
        raise UnreadableCheckpoint(path, "is damaged: its ranks have different numbers of model chunks")
