"""Errors of torch that have a type of their own in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from probe_precheck.memory import OUT_OF_MEMORY_TEXT

ALLOCATION_FAILURES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "std::bad_alloc",
)
"""Texts of torch's errors if memory of the CPU cannot be allocated."""


@contextmanager
def raise_memory_errors() -> Iterator[None]:
    """Raise MemoryError with a sentence for any allocation on the CPU that fails.

    Torch raises RuntimeError for such allocations, with the place in its source code.
    """
    try:
        yield
    except MemoryError:
        raise MemoryError(OUT_OF_MEMORY_TEXT) from None
    except RuntimeError as error:
        if not any(text in str(error) for text in ALLOCATION_FAILURES):
            raise
        raise MemoryError(OUT_OF_MEMORY_TEXT) from None
