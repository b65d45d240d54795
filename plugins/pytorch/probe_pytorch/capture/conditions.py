"""The conditions of a step of a PyTorch program: settings of torch, random states and the batch."""

from __future__ import annotations

import weakref
from collections import Counter
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any

import torch
from probe_recording.api import ConditionCapture, Session
from probe_recording.step_facts.batch_values import (
    BLOCK,
    CHUNK_BLOCKS,
    chunk_weight,
    create_batch_entry,
    hash_weights,
    iterate_batch_tensors,
)
from probe_recording.step_facts.conditions import Conditions, Fact
from torch.utils.data.dataloader import _BaseDataLoaderIter

from probe_pytorch import compat, compat_conditions
from probe_pytorch.generators import hash_state, iterate_default_generators, read_states
from probe_pytorch.statistics import PLAIN


class TorchConditions(ConditionCapture):
    """A capture of the conditions of PyTorch steps."""

    def __init__(self) -> None:
        super().__init__()
        self.data = DataPosition()

    def begin(self, session: Session) -> None:
        """Begin a step, which ``session`` records."""
        self.data.watch()
        super().begin(session)

    def read_data_position(self) -> dict[str, Fact]:
        """Return the position of the data loader that returned the latest batch."""
        return self.data.read_facts()

    def read_versions(self) -> dict[str, Fact]:
        """Return the versions of the libraries that torch was built with or loaded."""
        return compat_conditions.read_library_versions()

    def read_devices(self) -> dict[str, Fact]:
        """Return the instruction set of the CPU kernels, and the names of the devices in use."""
        facts: dict[str, Fact] = {"instruction_set": compat_conditions.read_instruction_set()}
        for name, module in compat_conditions.iterate_device_modules():
            kinds = {str(module.get_device_name(number)) for number in range(module.device_count())}
            facts[name] = ", ".join(sorted(kinds))
        return facts

    def read_numerics(self) -> dict[str, Fact]:
        """Return the settings of torch that may change numbers."""
        return compat_conditions.read_numerics()

    def read_layout(self) -> dict[str, Fact]:
        """Return the number of processes and the backend of the process group."""
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized()):
            return {}
        return {"world_size": dist.get_world_size(), "backend": str(dist.get_backend())}

    def hash_states(self) -> dict[str, str]:
        """Return the hash of the state of each default generator."""
        return {name: hash_state(state) for name, _, state in read_states()}

    def collect_seeds(self) -> dict[str, int]:
        """Return the random seed of each default generator."""
        return {name: generator.initial_seed() for name, generator in iterate_default_generators()}

    def hash_batch(self, conditions: Conditions, args: Any, kwargs: Any) -> None:
        """Add a hash of each tensor in the arguments of a model; hashes on a device are fetched later."""
        for name, tensor in iterate_batch_tensors(args, kwargs, torch.Tensor):
            self._add(conditions, name, tensor)

    def close(self) -> None:
        """Stop observing data loaders."""
        self.data.remove()

    def quiet(self) -> AbstractContextManager[Any]:
        """Return a context inside which no computation is recorded."""
        return compat.disable_modes()

    def _add(self, conditions: Conditions, name: str, tensor: torch.Tensor) -> None:
        result = hash_tensor(tensor)
        if result is None:
            return
        dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)

        def fetch() -> None:
            conditions.batch[name] = create_batch_entry(dtype, shape, int(result.item()))

        conditions.pending.append(fetch)


# -- a hash of a tensor's bits that depends on their order, computed on the tensor's own device -----


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
"""Integers that elements are read as, by their size; large ones as two, so that weights reach all bits."""


def hash_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a hash of the bits of a tensor; None for a tensor whose bits cannot be read.

    The hash is ``sum((bits[i] + 1) * weight[i])`` modulo 2**64, where the weights are a fixed sequence of
    pseudo-random odd numbers, and bits are one element, or half an element of 8 bytes, as an integer. It is
    the same on all devices.

    Args:
        tensor: A tensor of any shape.

    Returns:
        The hash as an int64 tensor of one element on the device of the tensor, which is not waited for.
    """
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    if tensor.is_meta or compat.is_transformed(tensor):
        return None
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if not flat.numel():
        return total
    bits = flat.view(_BITS[flat.element_size()])
    weights = _compute_weights(BLOCK, tensor.device)
    size = BLOCK * CHUNK_BLOCKS
    for start in range(0, bits.numel(), size):
        total += _hash_chunk(bits[start : start + size], weights) * chunk_weight(start // size)
    return total


def _hash_chunk(bits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the hash of at most ``CHUNK_BLOCKS`` blocks."""
    whole = bits.numel() // BLOCK
    block_weights = _compute_weights(CHUNK_BLOCKS + 1, bits.device)
    rest = bits[whole * BLOCK :].to(torch.int64) + 1
    total = (rest * weights[: rest.numel()]).sum() * block_weights[whole]
    if whole:
        blocks = bits[: whole * BLOCK].view(whole, BLOCK).to(torch.int64, copy=True)
        total += (blocks.add_(1).mul_(weights).sum(1) * block_weights[:whole]).sum()
    return total


@cache
def _compute_weights(count: int, device: torch.device) -> torch.Tensor:
    """Return the first weights on a device."""
    return torch.from_numpy(hash_weights(count)).to(device)


# -- the position of a program in its training data, as torch's data loaders show it ----------------


class DataPosition:
    """A watcher of the batches that data loaders return."""

    def __init__(self) -> None:
        self._last: weakref.ref[Any] | None = None
        self._epochs: Counter[int] = Counter()
        self._patched: tuple[Any, Any] | None = None

    def watch(self) -> None:
        """Watch all data loaders of this process from now on."""
        if self._patched is not None:
            return
        original: Any = _BaseDataLoaderIter.__next__
        reference = weakref.ref(self)

        @wraps(original)
        def fetch_next(iterator: Any) -> Any:
            batch = original(iterator)
            position = reference()
            if position is not None:
                position._note(iterator)
            return batch

        _BaseDataLoaderIter.__next__ = fetch_next  # type: ignore[assignment, method-assign]
        self._patched = fetch_next, original

    def remove(self) -> None:
        """Stop watching."""
        if self._patched is not None and _BaseDataLoaderIter.__next__ is self._patched[0]:
            _BaseDataLoaderIter.__next__ = self._patched[1]  # type: ignore[method-assign]
        self._patched = None

    def read_facts(self) -> dict[str, Fact]:
        """Return the epoch and the number of the last batch in it, both from 0; empty if there is none."""
        iterator = self._last() if self._last is not None else None
        number = getattr(iterator, "_num_yielded", 0)
        if not number:
            return {}
        return {"epoch": self._epochs[id(iterator._dataset)] - 1, "batch": number - 1}  # type: ignore[union-attr]

    def _note(self, iterator: Any) -> None:
        if getattr(iterator, "_num_yielded", 0) == 1:
            self._epochs[id(iterator._dataset)] += 1
        self._last = weakref.ref(iterator)
