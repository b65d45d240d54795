"""Repetitions of a test, with other numbers of threads and other data, by which its spread is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from pytest_probe.limits import load_limits


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


def list_repetitions() -> tuple[Repetition, list[Repetition]]:
    """Return the golden run of a test, and its repetitions, the first of which has the same data.

    Numbers of threads alternate, so that the repetitions show both their effect and that of rounded data.
    """
    threads = torch.get_num_threads()
    second = 1 if threads > 1 else 2
    others = [Repetition(threads if data % 2 else second, data) for data in range(load_limits().repetitions)]
    return Repetition(threads, 0), others


def round_otherwise(data: int, tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
    """Round the numbers of tensors in another way, and return a function that restores them.

    Each number is multiplied by a random one within one eps of 1, so that the results show what rounding makes of them.

    Args:
        data: The number of the set of data, which seeds the noise; 0 changes nothing.
        tensors: The tensors; those that cannot be written, such as expanded ones, stay as they are.
    """
    generator = torch.Generator().manual_seed(data)
    before: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        for tensor in {id(tensor): tensor for tensor in tensors}.values() if data else ():
            if tensor.is_floating_point():
                noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).mul_(2).sub_(1)
                factor = noise.mul_(torch.finfo(tensor.dtype).eps).add_(1).to(tensor.device)
                original = tensor.clone()
                with suppress(RuntimeError):
                    tensor.copy_(tensor.double() * factor)
                    before.append((tensor, original))

    def restore() -> None:
        with torch.no_grad():
            for tensor, original in before:
                tensor.copy_(original)

    return restore


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from list_tensors(item)
    elif isinstance(value, dict):
        yield from list_tensors([*value.values()])
