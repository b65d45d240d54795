"""Tensors of collective operations of torch.distributed, observed by wrappers of its functions."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from probe_check.monitor.figures import Figures
from probe_check.monitor.pytorch.hooks import Observation, TrainingHooks
from probe_check.monitor.pytorch.measurement import TensorMeasurement, measure, resolve
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError

OBSERVED_FUNCTIONS = (
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "broadcast", "all_reduce", "reduce", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_gather", "gather", "all_gather_into_tensor",
    "_reduce_scatter_base", "_all_gather_base",
)  # fmt: skip
"""Functions that are observed; those with an underscore are older names that programs still call."""
_SUMMED_OPERATIONS = frozenset({"norm", "nans"})
_EXTREMES: dict[str, Callable[[Sequence[float]], float]] = {"min": min, "max": max}
_WRAPPER_FILES = (__file__, functools.__file__)


class CommunicationHooks(TrainingHooks):
    """Wrappers of the functions of collective operations.

    Args:
        settings: The configuration.
        observation: The conditions of the observation.

    Raises:
        UserError: torch.distributed is not initialized.
    """

    def __init__(self, settings: MonitorSettings, observation: Observation) -> None:
        super().__init__()
        if not dist.is_available() or not dist.is_initialized():
            raise UserError(
                '"cc_distribution" needs an initialized torch.distributed.',
                "Call set_monitor() after torch.distributed.init_process_group(), or remove the section.",
            )
        self._settings = settings.communication
        self._operations = settings.operations
        self._epsilon = settings.epsilon
        self._observation = observation
        self._patterns = [re.compile(line) for line in self._settings.code_lines]
        self._values: dict[tuple[str, str], list[TensorMeasurement]] = {}
        self._pending: dict[int, tuple[Any, str, tuple[Any, ...]]] = {}
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._thread = threading.local()
        self._stacks: dict[str, set[str]] = {}
        self._install()

    def _install(self) -> None:
        """Replace the functions by wrappers."""
        modules = (dist, sys.modules["torch.distributed.distributed_c10d"])
        for name in OBSERVED_FUNCTIONS:
            original = getattr(dist, name, None)
            if original is None:
                continue
            wrapper = self._create_wrapper(name, original)
            for module in modules:
                if getattr(module, name, None) is original:
                    self._replace(module, name, original, wrapper)
        wait = dist.Work.wait

        @functools.wraps(wait)
        def wait_and_observe(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = wait(work, *args, **kwargs)
            pending = self._pending.pop(id(work), None)
            if pending is not None:
                self._observe(pending[1], "post", pending[2])
            return result

        self._replace(dist.Work, "wait", wait, wait_and_observe)

    def _replace(self, holder: Any, name: str, original: Any, wrapper: Any) -> None:
        setattr(holder, name, wrapper)
        self._replaced.append((holder, name, original, wrapper))

    def remove(self) -> None:
        """Restore the functions."""
        for holder, name, original, wrapper in reversed(self._replaced):
            if getattr(holder, name, None) is wrapper:
                setattr(holder, name, original)
        self._replaced.clear()
        self._pending.clear()

    def _create_wrapper(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call_and_observe(*args: Any, **kwargs: Any) -> Any:
            is_inner = getattr(self._thread, "is_inside", False)
            if is_inner or not self._observation.is_active() or not self._is_wanted(name):
                return original(*args, **kwargs)
            values = (*args, *kwargs.values())
            if self._settings.has_inputs and not self._settings.is_log_only:
                self._observe(name, "pre", values)
            self._thread.is_inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._thread.is_inside = False
            if not self._settings.is_log_only:
                self._observe_result(name, values, result)
            return result

        return call_and_observe

    def _is_wanted(self, name: str) -> bool:
        if self._settings.is_log_only:
            self._stacks.setdefault(name, set()).add(";".join(format_call_stack()))
            return True
        if not self._patterns:
            return True
        stack = ";".join(format_call_stack())
        return any(pattern.search(stack) for pattern in self._patterns)

    def _observe_result(self, name: str, values: tuple[Any, ...], result: Any) -> None:
        works = result if isinstance(result, list) else [result]
        pending = [work for work in works if isinstance(work, dist.Work)]
        if not pending:
            self._observe(name, "post", values)
            return
        self._pending[id(pending[-1])] = pending[-1], name, values  # holds the work, so its id stays unique

    def _observe(self, name: str, prefix: str, values: tuple[Any, ...]) -> None:
        try:
            for number, tensor in enumerate(_collect_tensors(values)):
                measured = measure(tensor, self._operations, self._epsilon)
                self._values.setdefault((name, f"{prefix}_{number}"), []).append(measured)
        except Exception as error:  # of the framework: the communication must go on
            self._observation.fail(error)

    def take(self) -> list[Figures]:
        """Return the figures of the step, one for all calls of an operation, and forget them."""
        values, self._values = self._values, {}
        self._pending.clear()
        resolve(each for listed in values.values() for each in listed)
        return [self._combine_calls(name, tag, listed) for (name, tag), listed in values.items()]

    def get_logged_stacks(self) -> Mapping[str, set[str]] | None:
        """Return the call stacks of each operation; None if they are not noted."""
        return self._stacks if self._settings.is_log_only else None

    def _combine_calls(self, name: str, tag: str, listed: Sequence[TensorMeasurement]) -> Figures:
        columns = zip(*(each.values for each in listed))
        numbers = tuple(
            _combine(operation, [float(value) for value in column])
            for operation, column in zip(self._operations, columns)
        )
        last = listed[-1]
        return Figures(Task.OTHER, 0, f"{name}.{tag}", None, numbers, last.shape, last.dtype, tag)


def _combine(operation: str, values: Sequence[float]) -> float:
    """Return the figure of several calls: the extreme, the sum of norms and counts, the mean of others."""
    if any(value != value for value in values):
        return float("nan")
    if operation in _EXTREMES:
        return _EXTREMES[operation](values)
    return sum(values) if operation in _SUMMED_OPERATIONS else sum(values) / len(values)


def _collect_tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors among the arguments; those of a list are joined to one."""
    tensors = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)) and value:
            parts: list[Any] = [getattr(part, "tensor", part) for part in value]
            if all(isinstance(part, torch.Tensor) for part in parts):
                tensors.append(torch.cat([part.detach().reshape(-1) for part in parts]))
    return tensors


def format_call_stack() -> list[str]:
    """Return the calls around a collective operation, innermost first, as ``file[line]   function``."""
    lines = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename not in _WRAPPER_FILES:
            lines.append(f"{code.co_filename}[{frame.f_lineno}]   {code.co_name}")
        frame = frame.f_back
    return lines
