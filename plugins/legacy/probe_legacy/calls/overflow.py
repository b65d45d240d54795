"""The overflow check of ptdbg_ascend: calls whose results hold nan or infinities are written at once."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from probe_pytorch import compat
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.kernel_dump import KernelDump
from probe_pytorch.overflow import Flags, find_device_flags
from probe_pytorch.session import TorchSession
from probe_recording.api import stack_of
from probe_recording.capture.interceptors import ActiveSession
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack, list_stack_lines

from probe_legacy.calls.recorder import find_node
from probe_legacy.calls.rows import split_frames
from probe_legacy.calls.selection import format_old_name
from probe_legacy.calls.versions import Version

NO_STATISTICS_FLAG = 101
"""The second field of the rows, which says that there are no statistics."""


@dataclass(slots=True)
class OverflowCheck:
    """The settings and the results of the check.

    Attributes:
        version: The version whose format is written.
        directory: The directory of the rank.
        most: The number of overflows after which the program ends.
        kernels: The dump of the device's kernels, to be made of each overflowing forward call; or None.
        is_on: True while calls are checked.
        filters: True to leave out numbers.
        flags: The overflow flag of an NPU that computes no infinities; None elsewhere.
        count: The number of overflows.
    """

    version: Version
    directory: Path
    most: int
    kernels: KernelDump | None = None
    is_on: bool = True
    filters: bool = True
    flags: Flags | None = field(default_factory=find_device_flags)
    count: int = 0

    def has_overflowed(self, results: Any) -> bool:
        """Return True if a call has overflowed: by the device's flag, or else by its results."""
        if self.flags is not None:
            return self.flags()
        return any(_is_bad(value) for _, value in iterate_places(results, ""))

    def write(self, name: str, inputs: Any, outputs: Any, stack: Stack) -> Path:
        """Write an overflowing call to a file of its own, and return the file."""
        self.count += 1
        if self.version.takes_directory:
            stem = f"{name}_{self.count}"
        else:
            stem = f"Overflow_info_{datetime.now(timezone.utc):%Y%m%d_%H%M%S}_{self.count}"
        file, directory = self.directory / f"{stem}.pkl", self.directory / stem
        directory.mkdir(exist_ok=True, mode=0o750)
        rows: list[list[Any]] = [[f"{name}_stack_info", split_frames(list_stack_lines(stack))]]
        for side, values in (("input", inputs), ("output", outputs)):
            for place, value in iterate_places(values, f"{name}_{side}"):
                row = self._create_row(place, value, directory)
                if row is not None:
                    rows.append(row)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return file

    def _create_row(self, place: str, value: Any, directory: Path) -> list[Any] | None:
        if isinstance(value, torch.Tensor):
            if not value.numel():
                return None
            array = value.detach().cpu()
            array = array.float() if array.dtype is torch.bfloat16 else array
            np.save(directory / f"{place}.npy", array.contiguous().numpy())
            return [place, NO_STATISTICS_FLAG, [], str(value.dtype), list(value.shape)]
        if self.filters or type(value) not in (int, float, bool):
            return None
        np.save(directory / f"{place}.npy", value)
        return [place, NO_STATISTICS_FLAG, [], str(type(value)), "[]", [value] * 3]


class OverflowCalls(TorchCallRecorder):
    """A capture of calls that checks each of them.

    Args:
        check: The settings.
        threads: The state of the threads.
    """

    def __init__(self, check: OverflowCheck, threads: Threads) -> None:
        self._check = check
        self._threads = threads
        self._counts: defaultdict[str, int] = defaultdict(int)
        self.session = cast(TorchSession, ActiveSession())

    def record(
        self, prefix: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        stack: Stack, shown: tuple[tuple[Any, ...], dict[str, Any]] | None = None, in_place: bool = False,
        filled: Collection[Any] = (), written: Sequence[Any] = (),
    ) -> Any:  # fmt: skip
        """Run ``function``, and check its results.

        Raises:
            ValueError: There are as many overflows as were asked for; the message names the file.
        """
        key = f"{prefix}.{self._counts[prefix]}"
        self._counts[prefix] += 1
        result = function(*args, **kwargs)
        with compat.disable_modes():
            inputs = (shown or (args, kwargs))[0]
            is_bad = self._examine(f"{key}.forward", inputs, result, result, stack)
            if is_bad and self._check.kernels is not None:
                self._check.kernels.replay(self._threads.outermost(function), args, kwargs)
            self._end_if_done(is_bad)
        node = find_node(result)
        if node is not None:
            node.register_hook(partial(self._examine_gradients, f"{key}.backward"))
        return result

    def note_allocation(self, name: str, tensor: Any) -> None:
        """Ignore memory without values, of which nothing is recorded."""

    def _examine_gradients(self, key: str, gradients: tuple[Any, ...], incoming: tuple[Any, ...]) -> None:
        stack = stack_of(sys._getframe(1))
        with compat.disable_modes():
            self._end_if_done(self._examine(key, incoming, gradients, gradients, stack))

    def _examine(self, key: str, inputs: Any, outputs: Any, results: Any, stack: Stack) -> bool:
        """Write a call if it has overflowed; return True if it has."""
        check = self._check
        if not check.is_on or check.count >= check.most or not check.has_overflowed(results):
            return False
        name = format_old_name(key)
        self._file = check.write(name, inputs, outputs, stack)
        print(
            f"[overflow {check.count} times]: module name :'{name}' is overflow and dump file is saved in "
            f"'{self._file}'."
        )
        return True

    def _end_if_done(self, is_bad: bool) -> None:
        if is_bad and self._check.count >= self._check.most:
            raise ValueError(f"[overflow {self._check.count} times]: dump file is saved in '{self._file}'.")

    def begin(self, *_: Any, **__: Any) -> None:
        """Leave out a collective, whose results arrive later."""


def iterate_places(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the values in lists and tuples, each with its place as the tool wrote it."""
    if isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from iterate_places(item, f"{prefix}.{number}")
    else:
        yield prefix, value


def _is_bad(value: Any) -> bool:
    """Return True for nan and infinities, of a tensor or a number."""
    if isinstance(value, torch.Tensor):
        if not (value.is_floating_point() or value.is_complex()) or not value.numel():
            return False
        return not bool(torch.isfinite(value.detach()).all())
    return isinstance(value, float) and not abs(value) < float("inf")
