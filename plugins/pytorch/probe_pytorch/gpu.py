"""Statistics and checksums of tensors on a GPU, each by a single kernel (docs/formats.md#statistics).

The kernels need Triton, which belongs to the builds of torch for GPUs. Without Triton, or if a kernel cannot be
built, functions of torch compute the same statistics with about ten kernels for each tensor, and checksums are
computed in host memory.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import threading
from collections.abc import Callable, Hashable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import torch
from probe_recording.messages import note

from probe_core.errors import make_printable
from probe_pytorch.compat import get_raw_stream

BLOCK_LEVEL = 10
PROGRAMS_LEVEL = 8
"""A program reads 2 ** BLOCK_LEVEL elements at a time; at most 2 ** PROGRAMS_LEVEL programs share a tensor."""

_ROUNDS = 4
"""The number of blocks that a program reads before a tensor is shared among more programs."""

_ROWS = 512
"""The number of results that are allocated together."""

_POLYNOMIAL = 0xEDB88320
"""The polynomial of CRC-32, its lowest power in the highest bit (ISO 3309, RFC 1952)."""


class _Comparison(NamedTuple):
    """The dtype in which elements are compared, bounds of the elements, and the dtype of the results."""

    dtype: torch.dtype
    least: float
    most: float
    results: torch.dtype


_FLOAT = _Comparison(torch.float32, -math.inf, math.inf, torch.float64)
_INTEGER = _Comparison(torch.int32, -(2**31), 2**31 - 1, torch.float64)
_LONG = _Comparison(torch.int64, -(2**63), 2**63 - 1, torch.int64)
_COMPARISONS = {
    torch.float32: _FLOAT, torch.float16: _FLOAT, torch.bfloat16: _FLOAT,
    torch.int32: _INTEGER, torch.int16: _INTEGER, torch.int8: _INTEGER, torch.uint8: _INTEGER,
    torch.int64: _LONG,
}  # fmt: skip
"""The dtypes that the kernel measures. float64 is missing, because squares may leave its range."""


def measure_on_gpu(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return maximum, minimum, mean and norm of a tensor as a tensor of shape (4,) on its device.

    Args:
        tensor: A tensor with at least one element, adjacent in memory in any order.

    Returns:
        Four float64. For int64, four int64: maximum, minimum, and the bits of mean and norm. None if the kernel
        cannot measure this tensor.
    """
    if tensor.dtype is torch.bool:
        tensor = tensor.view(torch.uint8)
    launcher = load_launcher()
    if launcher is None or tensor.dtype not in _COMPARISONS:
        return None
    return launcher.launch(launcher.measure, tensor)


def checksum_on_gpu(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the CRC-32 of the bytes of a contiguous tensor as a 0-d int32 on its device; None without the kernel."""
    launcher = load_launcher()
    if launcher is None:
        return None
    return launcher.launch(launcher.checksum, tensor.reshape(-1).view(torch.uint8))


class _Rows:
    """Rows for results, allocated ``_ROWS`` at a time."""

    def __init__(self, device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self._new = partial(torch.empty, (_ROWS, *shape), dtype=dtype, device=device)
        self._views: tuple[torch.Tensor, ...] = ()
        self._used = _ROWS

    def take(self) -> tuple[torch.Tensor, int, torch.Tensor]:
        """Return a tensor of rows, the number of a row that is not used yet, and a view of this row."""
        if self._used == _ROWS:
            self.results = self._new()
            self._views, self._used = self.results.unbind(), 0
        row = self._used
        self._used += 1
        return self.results, row, self._views[row]


class _Workspace:
    """The memory that kernels use on one stream of one device."""

    def __init__(self, device: torch.device) -> None:
        self.finished = torch.zeros(1, dtype=torch.int32, device=device)
        self.table = torch.tensor([_convert_to_signed(state) for row in compute_table() for state in row],
                                  dtype=torch.int32, device=device)  # fmt: skip
        self.parts = {
            dtype: torch.empty(2 * 2**PROGRAMS_LEVEL, dtype=dtype, device=device)
            for dtype in (torch.float64, torch.float32, torch.int32, torch.int64)
        }
        self.rows = {dtype: _Rows(device, dtype, (4,)) for dtype in (torch.float64, torch.int64)}
        self.rows[torch.int32] = _Rows(device, torch.int32, ())


class Launcher:
    """Launches kernels on the current stream of a tensor's device.

    Args:
        kernels: The module ``gpu_kernels``, or a stand-in.
        keeps_compiled: True if ``compiled[grid](*arguments)`` launches what a kernel's first launch returned. This
            takes a quarter of the time of ``kernel[grid](*arguments)``.
    """

    def __init__(self, kernels: Any, keeps_compiled: bool) -> None:
        self._kernels = kernels
        self._keeps_compiled = keeps_compiled
        self._lock = threading.Lock()
        self._workspaces: dict[tuple[int, int], _Workspace] = {}
        self._compiled: dict[Hashable, Any] = {}
        self._works = True

    def launch(self, method: Callable[[torch.Tensor, int], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the result of ``measure`` or ``checksum``; None while a graph is captured and after a failure.

        A failure is reported once on stderr.
        """
        if not self._works or torch.cuda.is_current_stream_capturing():
            return None
        index = tensor.get_device()
        try:
            with self._lock:
                if index == torch.cuda.current_device():
                    return method(tensor, get_raw_stream(index))
                with torch.cuda.device(index):
                    return method(tensor, get_raw_stream(index))
        except Exception as error:  # a kernel may not be built: an old GPU, no C compiler, a read-only home directory
            self._works = False
            problem = make_printable(f"{type(error).__name__}: {error}")
            note(f"probe: Recording takes longer, because its kernels cannot run on this GPU ({problem})")
            return None

    def measure(self, tensor: torch.Tensor, stream: int) -> torch.Tensor:
        """Return the four statistics of a tensor on the current device."""
        comparison = _COMPARISONS[tensor.dtype]
        workspace = self._find_workspace(tensor, stream)
        results, row, view = workspace.rows[comparison.results].take()
        count = tensor.numel()
        pointers = (
            tensor,
            results,
            workspace.finished,
            workspace.parts[torch.float64],
            workspace.parts[comparison.dtype],
        )
        numbers = (count, row, comparison.least, comparison.most, BLOCK_LEVEL, PROGRAMS_LEVEL)
        programs = min(2**PROGRAMS_LEVEL, -(-count // (_ROUNDS << BLOCK_LEVEL)))
        self._start(self._kernels.measure, programs, pointers, numbers, stream)
        return view

    def checksum(self, octets: torch.Tensor, stream: int) -> torch.Tensor:
        """Return the CRC-32 of a tensor of uint8 on the current device."""
        workspace = self._find_workspace(octets, stream)
        results, row, view = workspace.rows[torch.int32].take()
        count = octets.numel()
        blocks = -(-count // (4 * _ROUNDS << BLOCK_LEVEL))
        level = min(PROGRAMS_LEVEL, (blocks - 1).bit_length())
        pointers = (octets, results, workspace.finished, workspace.parts[torch.int32], workspace.table)
        numbers = (count, row, level, _convert_to_signed(checksum_zeros(count)), BLOCK_LEVEL, PROGRAMS_LEVEL)
        self._start(self._kernels.checksum, 2**level, pointers, numbers, stream)
        return view

    def _start(
        self, kernel: Any, programs: int, pointers: tuple[torch.Tensor, ...], numbers: tuple[Any, ...], stream: int
    ) -> None:
        """Launch a kernel; it is compiled for each dtype, and for tensors that are not aligned or very large."""
        tensor = pointers[0]
        addresses = [pointer.data_ptr() for pointer in pointers]
        variant = (
            kernel, programs, tensor.dtype, addresses[0] % 16 == 0, tensor.nbytes < 2**31, tensor.get_device()
        )  # fmt: skip
        compiled = self._compiled.get(variant)
        if compiled is not None:
            compiled(*addresses, *numbers, stream=stream)
            return
        compiled = kernel[(programs,)](*pointers, *numbers)
        if self._keeps_compiled:
            self._compiled[variant] = compiled[(programs, 1, 1)]

    def _find_workspace(self, tensor: torch.Tensor, stream: int) -> _Workspace:
        key = tensor.get_device(), stream
        workspace = self._workspaces.get(key)
        if workspace is None:
            workspace = self._workspaces[key] = _Workspace(tensor.device)
        return workspace


@cache
def load_launcher() -> Launcher | None:
    """Return the launcher of the kernels; None without Triton."""
    try:
        version = importlib.metadata.version("triton").split(".")
        keeps_compiled = (int(version[0]), int(version[1])) >= (3, 3)
        return Launcher(importlib.import_module("probe_pytorch.gpu_kernels"), keeps_compiled)
    except Exception:  # an installed Triton may fail for many reasons
        return None


def _convert_to_signed(state: int) -> int:
    """Return 32 bits as the int32 of the same bits."""
    return state - 2**32 if state >= 2**31 else state


@cache
def compute_table() -> tuple[tuple[int, ...], ...]:
    """Return what zeros do to a state of CRC-32.

    Returns:
        Row n has 32 states: bit by bit, the state after ``2 ** n`` words of zeros if only this bit was set before.
    """
    row = tuple(_advance_bits(1 << bit, 32) for bit in range(32))
    rows = [row]
    for _ in range(62):
        row = tuple(_advance(row, state) for state in row)
        rows.append(row)
    return tuple(rows)


def _advance_bits(state: int, bits: int) -> int:
    for _ in range(bits):
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def _advance(row: tuple[int, ...], state: int) -> int:
    result = 0
    for bit, image in enumerate(row):
        if state >> bit & 1:
            result ^= image
    return result


@lru_cache(4096)
def checksum_zeros(count: int) -> int:
    """Return the CRC-32 of ``count`` bytes of zeros.

    With the checksum of zeros, the checksum of other bytes follows from a state that begins with 0: CRC-32 is
    linear, and only its first and last steps add ones.
    """
    words, octets = divmod(count, 4)
    state = _advance_bits(0xFFFFFFFF, 8 * octets)
    for level, row in enumerate(compute_table()):
        if words >> level & 1:
            state = _advance(row, state)
    return state ^ 0xFFFFFFFF
