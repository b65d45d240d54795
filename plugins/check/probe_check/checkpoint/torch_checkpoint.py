"""The tensors and settings in the data of ``torch.save``, under the names that both checkpoints share.

Names: docs/checkpoints.md#names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from probe_recording.reading.pickle_data import PickleError

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.checkpoint_pickle import StorageReference
from probe_check.checkpoint.errors import TensorProblem, UnreadableCheckpoint
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.nested import convert_to_setting, is_tensor, iterate_leaves
from probe_check.checkpoint.optimizer import replace_parameter_numbers
from probe_check.checkpoint.tensors import Tensor
from probe_check.checkpoint.torch_archive import ZIP_MARK, TorchArchive
from probe_check.checkpoint.torch_legacy import LEGACY_MARK, LegacyFile
from probe_check.checkpoint.torch_tensor import build_tensor

WRAPPER_KEYS = ("model", "state_dict", "model_state_dict", "module", "net")
"""Keys of a file whose values are the parameters; they are not part of the names."""
OPTIMIZER_KEYS = ("optimizer", "optimizer_state_dict", "optim", "optimizer_states")
MAX_EXPANSION_RATIO = 64
"""Largest ratio between the bytes of all tensors and those of their file; tied parameters need less."""
EXPANSION_ALLOWANCE_BYTES = 64 << 20


class TorchFile(Protocol):
    """A file of ``torch.save``."""

    @property
    def is_big_endian(self) -> bool:
        """True if elements are stored with the highest byte first."""

    def read_content(self) -> Any:
        """Return the data of the file; tensors are descriptions."""

    def find_storage(self, reference: StorageReference) -> ByteSource:
        """Return the bytes of a storage."""


def open_torch(path: Path) -> TorchFile:
    """Return a file of ``torch.save``, whose form its first bytes show.

    Raises:
        UnreadableCheckpoint: The file is damaged or of another format.
    """
    source = ByteSource.from_path(path)
    head = bytes(source.read(0, min(source.size, 300)))
    if head.startswith(ZIP_MARK):
        return TorchArchive(source)
    if head.startswith(LEGACY_MARK):
        return LegacyFile(source)
    if not head:
        raise UnreadableCheckpoint(path, "is empty")
    if head[257:262] == b"ustar":
        raise UnreadableCheckpoint(path, "is a tar archive of PyTorch before 0.1.10, which is not supported")
    if head[:1] == b"\x80":
        raise UnreadableCheckpoint(
            path, "is a bare pickle, which torch.save does not write", "Save the tensors with torch.save."
        )
    raise UnreadableCheckpoint(path, "is no file of torch.save: it is neither a zip archive nor a pickle")


def read_torch(path: Path) -> Checkpoint:
    """Return the tensors and settings of a file of ``torch.save``.

    Raises:
        UnreadableCheckpoint: The file is damaged.
    """
    file = open_torch(path)
    return create_checkpoint(path, file, unwrap_parameters(file.read_content()))


def unwrap_parameters(content: Any) -> Any:
    """Return the data of a file without the levels that only wrap the parameters."""
    if is_tensor(content):
        return {"tensor": content}
    if not isinstance(content, dict):
        return content
    if "state" in content and "param_groups" in content:
        return {"optimizer": content}
    wrapped = [key for key in WRAPPER_KEYS if isinstance(content.get(key), dict)]
    if len(wrapped) != 1:
        return content
    model = content[wrapped[0]]
    return {
        **model,
        **{
            key: value for key, value in rename_optimizer_key(content).items() if key not in model and key != wrapped[0]
        },
    }


def rename_optimizer_key(content: dict[Any, Any]) -> dict[Any, Any]:
    """Return the data of a file with the usual name for the state of the optimizer."""
    return {("optimizer" if key in OPTIMIZER_KEYS else key): value for key, value in content.items()}


def create_checkpoint(path: Path, file: TorchFile, content: Any) -> Checkpoint:
    """Return the named tensors and settings within the data of a file."""
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    try:
        for parts, value in iterate_leaves(content):
            name = ".".join(parts)
            if not is_tensor(value):
                settings[name] = convert_to_setting(value)
                continue
            try:
                tensors[name] = build_tensor(value, file.find_storage, is_big_endian=file.is_big_endian)
            except TensorProblem as problem:
                unreadable[name] = str(problem)
    except PickleError as error:
        raise UnreadableCheckpoint(path, f"cannot be read: {error}") from None
    _check_expansion(path, tensors)
    return Checkpoint(path, *replace_parameter_numbers(tensors, settings), unreadable)


def _check_expansion(path: Path, tensors: dict[str, Tensor]) -> None:
    """Check that a small file does not describe so many elements that they are never compared."""
    total = sum(tensor.count * tensor.element.size for tensor in tensors.values())
    size = path.stat().st_size
    if total > MAX_EXPANSION_RATIO * size + EXPANSION_ALLOWANCE_BYTES:
        raise UnreadableCheckpoint(path, f"describes tensors of {total} bytes, but has only {size}")
