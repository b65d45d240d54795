"""The figures of one observed tensor in one step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from probe_check.monitor.tasks import Task

LAYOUT_COLUMNS = ("shape", "dtype")
"""Columns that follow those of the operations."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one observed tensor in one step.

    Attributes:
        task: The kind of the tensor.
        model: The number of the model, of several that ``set_monitor`` was given.
        name: The name of the parameter, or of the module and its side.
        micro_step: The number of the micro-batch; None for a value of the whole step.
        values: The result of each operation, in the order of the configuration.
        shape: The shape; None if the value is not a tensor.
        dtype: The name of the dtype; empty if the value is not a tensor.
        tag: The last part of the tag, if it is not that of the task.
    """

    task: Task
    model: int
    name: str
    micro_step: int | None
    values: tuple[float, ...]
    shape: tuple[int, ...] | None
    dtype: str
    tag: str = ""

    def format_tag(self, rank: int) -> str:
        """Return the tag of events, such as ``0:fc.weight/rank0/post_grad``."""
        micro_step = "" if self.micro_step is None else f":{self.micro_step}"
        return f"{self.model}:{self.name}{micro_step}/rank{rank}/{self.tag or self.task.tag}"


def create_empty_figures(task: Task, model: int, name: str, micro_step: int | None, count: int) -> Figures:
    """Return the figures of a value that is not a tensor, or of a gradient that does not exist.

    Args:
        task: The kind of the value.
        model: The number of the model.
        name: Its name.
        micro_step: The number of the micro-batch.
        count: The number of operations.
    """
    return Figures(task, model, name, micro_step, (math.nan,) * count, None, "")


def list_columns(task: Task, operations: Sequence[str], *, has_micro_step: bool) -> list[str]:
    """Return the titles of the columns of a csv."""
    task_operations = task.operations
    figures = [*operations, *LAYOUT_COLUMNS] if task_operations is None else list(task_operations)
    return ["vpp_stage", "name", "step", *(["micro_step"] if has_micro_step else []), *figures]
