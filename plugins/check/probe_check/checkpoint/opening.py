"""Opening of a checkpoint: a file or a directory of any supported format (docs/checkpoints.md#formats)."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_check.checkpoint.byte_source import ByteSource, create_read_error, is_file_name
from probe_check.checkpoint.distributed import METADATA_FILE, read_distributed
from probe_check.checkpoint.errors import UnreadableCheckpoint
from probe_check.checkpoint.megatron import LATEST_FILE, find_iteration_directory, has_ranks, read_megatron
from probe_check.checkpoint.mindspore_file import is_mindspore, read_mindspore
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.optimizer import replace_parameter_numbers
from probe_check.checkpoint.safetensors_file import read_safetensors
from probe_check.checkpoint.torch_archive import ZIP_MARK
from probe_check.checkpoint.torch_checkpoint import read_torch

INDEX_SUFFIX = ".index.json"
MAX_INDEX_BYTES = 256 << 20
MAX_SHARDS = 10_000
OPTIMIZER_FILE = "optimizer.pt"
COMPANION_FILES = (OPTIMIZER_FILE, "optimizer.bin", "scheduler.pt", "scheduler.bin", "training_args.bin", "scaler.pt")
"""Files that trainers write next to a model."""
CHECKPOINT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the tensors and settings of a checkpoint.

    Raises:
        UnreadableCheckpoint: The checkpoint is missing or damaged, or has an unknown format.
    """
    path = Path(path)
    try:
        is_directory = path.is_dir()
        if not is_directory:
            path.stat()
    except (OSError, ValueError) as error:
        raise create_read_error(path, error) from None
    try:
        return _open_directory(path) if is_directory else _open_file(path)
    except OSError as error:
        raise create_read_error(path, error) from None


def _open_file(path: Path) -> Checkpoint:
    if path.name.endswith(INDEX_SUFFIX):
        return _read_index(path)
    source = ByteSource.from_path(path)
    head = bytes(source.read(0, min(16, source.size)))
    if path.suffix == ".safetensors" or (head[8:9] == b"{" and not head.startswith(ZIP_MARK)):
        return read_safetensors(path)
    return read_mindspore(path) if is_mindspore(head) else read_torch(path)


def _open_directory(path: Path) -> Checkpoint:
    try:
        names = sorted(child.name for child in path.iterdir())
    except OSError as error:
        raise create_read_error(path, error) from None
    if LATEST_FILE in names:
        return _open_directory(find_iteration_directory(path))
    if METADATA_FILE in names:
        return read_distributed(path)
    if has_ranks(path):
        return read_megatron(path)
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    files = [name for name in names if name.endswith(CHECKPOINT_SUFFIXES)]
    if indexes:
        main = _read_index(path / _choose_file(path, indexes))
        return _add_optimizer_states(path, main) if OPTIMIZER_FILE in files else main
    if not files:
        raise UnreadableCheckpoint(
            path, "holds no checkpoint", f"Give a file, or a directory with a file {', '.join(CHECKPOINT_SUFFIXES)}."
        )
    model_files = [name for name in files if name not in COMPANION_FILES]
    main = replace(_open_file(path / _choose_file(path, model_files or files)), path=path)
    return _add_optimizer_states(path, main) if model_files and OPTIMIZER_FILE in files else main


def _add_optimizer_states(path: Path, model: Checkpoint) -> Checkpoint:
    """Return a model with the state of the optimizer in a file next to it."""
    states = read_torch(path / OPTIMIZER_FILE)
    tensors = {
        **model.tensors,
        **{name: t for name, t in states.tensors.items() if name not in model.tensors},
    }
    named, settings = replace_parameter_numbers(tensors, {**states.settings, **model.settings})
    return Checkpoint(path, named, settings, {**states.unreadable, **model.unreadable})


def _choose_file(path: Path, names: list[str]) -> str:
    """Return the file that contains the parameters: the only file, or the file with a usual name."""
    for pattern in (r"model\.safetensors.*", r"pytorch_model\.bin.*", r"[^/]*\.safetensors.*"):
        matches = [name for name in names if re.fullmatch(pattern, name)]
        if len(matches) == 1:
            return matches[0]
    if len(names) > 1:
        raise UnreadableCheckpoint(
            path, f"holds {len(names)} files that may be meant", f"Give one of them, such as {names[0]}."
        )
    return names[0]


def _read_index(path: Path) -> Checkpoint:
    """Return the tensors of all shards that an index lists."""
    shards = _read_shard_names(path)
    tensors: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name in shards:
        shard = path.parent / name
        part = read_safetensors(shard) if shard.suffix == ".safetensors" else read_torch(shard)
        tensors.update(part.tensors)
        unreadable.update(part.unreadable)
    return Checkpoint(path.parent, tensors, unreadable=unreadable)


def _read_shard_names(path: Path) -> list[str]:
    source = ByteSource.from_path(path)
    if source.size > MAX_INDEX_BYTES:
        raise UnreadableCheckpoint(path, "is too large for an index of shards")
    try:
        index = json.loads(bytes(source.read(0, source.size)))
        weights = index["weight_map"]
        shards = list(dict.fromkeys(weights.values()))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise UnreadableCheckpoint(path, "is no index of shards: it has no weight_map") from None
    for name in shards:
        if not is_file_name(name):
            raise UnreadableCheckpoint(path, f"names a shard outside of its directory, {name!r:.80}")
    if not 0 < len(shards) <= MAX_SHARDS:
        raise UnreadableCheckpoint(path, f"lists {len(shards)} shards")
    return shards
