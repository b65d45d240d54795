"""Repetitions of a test with other numbers of threads and other data, which measure the spread of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from pytest_probe.limits import load_limits


@dataclass(frozen=True, slots=True)
class Repetition:
    """A run of a test.

    Attributes:
        threads: The number of threads.
        data_set: The number of the set of data; 0 for the data of the test itself.
    """

    threads: int
    data_set: int

    @contextmanager
    def use_threads(self) -> Iterator[None]:
        """Use this number of threads in the block."""
        previous_threads = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(previous_threads)


def list_repetitions() -> tuple[Repetition, list[Repetition]]:
    """Return the golden run of a test and its repetitions. The first repetition has the data of the golden run.

    The number of threads alternates, so that the repetitions show the effect of the threads and the effect of
    rounded data.
    """
    threads = torch.get_num_threads()
    other_threads = 1 if threads > 1 else 2
    repetitions = [
        Repetition(threads if data_set % 2 else other_threads, data_set)
        for data_set in range(load_limits().repetitions)
    ]
    return Repetition(threads, 0), repetitions


def perturb_tensors(data_set: int, tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
    """Perturb the values of tensors within rounding, and return a function that restores the values.

    Each value is multiplied by a random factor between 1 - eps and 1 + eps, so that the results show the effect of
    rounding.

    Args:
        data_set: The number of the set of data, which seeds the noise; 0 changes nothing.
        tensors: The tensors. Tensors that cannot be written, such as expanded tensors, are not changed.
    """
    if not data_set:
        return lambda: None
    generator = torch.Generator().manual_seed(data_set)
    originals: list[tuple[torch.Tensor, torch.Tensor]] = []
    unique_tensors = {id(tensor): tensor for tensor in tensors}
    with torch.no_grad():
        for tensor in unique_tensors.values():
            if tensor.is_floating_point():
                noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).mul_(2).sub_(1)
                factor = noise.mul_(torch.finfo(tensor.dtype).eps).add_(1).to(tensor.device)
                original = tensor.clone()
                with suppress(RuntimeError):
                    tensor.copy_(tensor.double() * factor)
                    originals.append((tensor, original))

    def restore() -> None:
        with torch.no_grad():
            for tensor, original in originals:
                tensor.copy_(original)

    return restore


def iterate_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from iterate_tensors(item)
    elif isinstance(value, dict):
        yield from iterate_tensors([*value.values()])
