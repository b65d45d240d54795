"""The recording session of one step and rank of a PyTorch program: reads statistics from devices and stores tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import torch
from probe_recording.api import Config, Session, TensorLeaf, belongs_to_recorder
from probe_recording.framework import SendingMixin, StepDirectory
from probe_recording.values.leaves import Tree
from probe_recording.values.tensor_store import Entry, Store

from probe_pytorch import compat, compat_hooks
from probe_pytorch.overflow import find_device_flags
from probe_pytorch.statistics import decode_results
from probe_pytorch.storage.host_bytes import CHECKSUMS, copy_to_host, format_crc32
from probe_pytorch.storage.tensors import (
    INITIAL_HEADER_BYTES,
    SUFFIX,
    DelayedStore,
    FileStore,
    NamingStore,
    PackedStore,
)
from probe_pytorch.values import TorchCollector

__all__ = ["Entry", "TorchSession"]

belongs_to_recorder(Path(__file__).parent, "script.py")


class TorchSession(Session):
    """The recording of one step and rank; statistics on a device are fetched before they are written."""

    framework = "pytorch"
    suffix = SUFFIX
    least_room = INITIAL_HEADER_BYTES
    collector: TorchCollector

    def __init__(self, config: Config, directory: StepDirectory, shown: str, room: int = INITIAL_HEADER_BYTES) -> None:
        super().__init__(config, directory, shown, room)
        self._flags = find_device_flags() if config.task == "overflow_check" else None
        self._statistics_on_device: list[tuple[torch.Tensor, TensorLeaf]] = []
        self._checksums_on_device: list[tuple[torch.Tensor, TensorLeaf]] = []
        self.collector = TorchCollector(
            CHECKSUMS.get(config.summary),
            None if config.task == "overflow_check" else self.keep,
            self.keep_checksum if config.summary == "md5" else None,
            wide=config.precision == "high",
            measured=config.task != "structure" and config.online is None,
            failed=self.log_failure,
            encodes=config.task in ("statistics", "tensor"),
        )

    def keep(self, results: torch.Tensor, leaf: TensorLeaf) -> None:
        """Keep statistics on their device, with the leaf that they are for, until ``read_back``."""
        self._statistics_on_device.append((results, leaf))

    def keep_checksum(self, result: torch.Tensor, leaf: TensorLeaf) -> None:
        """Keep a CRC-32 on its device, with the leaf that it is for, until ``read_back``."""
        self._checksums_on_device.append((result, leaf))

    quiet = staticmethod(compat.disable_modes)

    def will_have_gradient(self, value: Any) -> bool:
        """Return True for a tensor that requires a gradient."""
        return isinstance(value, torch.Tensor) and value.requires_grad

    def expect_gradient(self, tensor: torch.Tensor, hook: Callable[[Any], None]) -> None:
        """Call ``hook`` with the gradient of a tensor; saving the tensor does not warn about this hook."""
        compat_hooks.register_hook(tensor, hook)

    def new_store(self) -> Store:
        """Return the store that ``store`` and ``async_dump`` of the configuration choose."""
        store: NamingStore
        if self.config.store == "packed":
            store = PackedStore(self.tensors, self.room)
        else:
            store = FileStore(self.tensors)
        return DelayedStore(store) if self.config.asynchronous else store

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor, on the same device."""
        return tensor.detach().clone()

    def has_overflowed(self, fields: dict[str, Tree]) -> bool:
        """Return the device's overflow flag if it has one, else True for nan or an infinity in the record."""
        return self._flags() if self._flags is not None else super().has_overflowed(fields)

    @property
    def is_waiting(self) -> bool:
        """True while statistics or checksums are still on a device."""
        return bool(self._statistics_on_device or self._checksums_on_device)

    def read_back(self) -> None:
        """Fetch the statistics and checksums that are still on devices, all of one device at once."""
        for four, leaf in _fetch(self._statistics_on_device):
            leaf.statistics = decode_results(four, getattr(torch, leaf.dtype.removeprefix("torch.")))
        for checksum, leaf in _fetch(self._checksums_on_device):
            leaf.checksum = format_crc32(checksum)


def _fetch(pending: list[tuple[torch.Tensor, TensorLeaf]]) -> Iterator[tuple[Any, TensorLeaf]]:
    """Yield the values of tensors on devices, with their leaves, and then remove them from the list.

    They are removed last, so that an interrupt does not lose them.
    """
    count = len(pending)
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[torch.Tensor, TensorLeaf]]] = {}
    for results, leaf in pending[:count]:
        groups.setdefault((results.device, results.dtype), []).append((results, leaf))
    for (device, _), group in groups.items():
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # results may come from several streams
        values = torch.stack([results for results, _ in group]).cpu().tolist()
        yield from zip(values, (leaf for _, leaf in group))
    del pending[:count]


class TorchSendingSession(SendingMixin, TorchSession):
    """A session whose forward calls are sent to a receiver; nothing is measured and nothing is written."""

    def describe_tensor(self, tensor: torch.Tensor) -> tuple[Hashable, int, str]:
        """Return the memory and layout of a tensor, its number of bytes and the name of its dtype."""
        name = str(tensor.dtype).removeprefix("torch.")
        bits = tensor.is_conj(), tensor.is_neg()
        place = tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), name, bits
        return place, tensor.numel() * tensor.element_size(), name

    def copy_to_host(self, tensor: torch.Tensor) -> tuple[memoryview, tuple[int, ...]]:
        """Return the bytes of a copy in host memory, and the shape; waits for the device."""
        host = copy_to_host(tensor)
        if host.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
            host = host.clone()
        flat: Any = host.reshape(-1).view(torch.uint8).numpy()
        return memoryview(flat), tuple(tensor.shape)
