"""Repetitions of a test, with other numbers of threads and other data, by which its spread is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

DATA_SETS = 3
"""Number of sets of data: those of the test, and others that differ from them slightly."""
DATA_NOISE = 1e-3
"""Relative size of the noise that makes other data, enough to round every number in another way."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of a test: its number of threads, and the number of its set of data (0 for the test's own)."""

    threads: int
    data: int

    @contextmanager
    def use_threads(self) -> Iterator[None]:
        """Use this number of threads in the block."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def list_repetitions() -> list[Repetition]:
    """Return the runs of a test by which its spread is measured; the first one is the golden run."""
    threads = torch.get_num_threads()
    second = 1 if threads > 1 else 2
    return [Repetition(count, data) for data in range(DATA_SETS) for count in (threads, second)]


@contextmanager
def change_data(data: int, models: Sequence[nn.Module], arguments: Any) -> Iterator[None]:
    """Multiply the parameters of models, and tensors among arguments, by noise around 1 while the block runs.

    Args:
        data: The number of the set of data, which seeds the noise; 0 changes nothing.
        models: The models.
        arguments: Tensors, and lists and dicts of them.
    """
    tensors = [parameter for model in models for parameter in model.parameters()] + [*list_tensors(arguments)]
    before: list[tuple[torch.Tensor, torch.Tensor]] = []
    generator = torch.Generator().manual_seed(data)
    with torch.no_grad():
        for tensor in {id(tensor): tensor for tensor in tensors}.values() if data else ():
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator).mul_(DATA_NOISE).add_(1)
                with suppress(RuntimeError):  # of tensors that cannot be written, such as expanded ones
                    original = tensor.clone()
                    tensor.mul_(noise.to(tensor))
                    before.append((tensor, original))
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, original in before:
                tensor.copy_(original)


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from list_tensors(item)
    elif isinstance(value, dict):
        yield from list_tensors([*value.values()])
