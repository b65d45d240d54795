"""The process of a program: its rank, and what its framework offers to tasks of plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from typing import Any

from probe_core.errors import UserError
from probe_recording.run_directory.directory import SINGLE


class Process:
    """The process of a program that uses a framework; frameworks override what differs.

    Attributes:
        distributed: A module with the functions ``is_available``, ``is_initialized``, ``get_rank`` and
            ``get_world_size`` of a process group; None if the framework has no such module.
        rank_variable: The environment variable in which launchers give a process its rank.
        size_variable: The environment variable with the number of processes.
        passed_rank: The rank that the script passed to ``start``; None to find it out.
    """

    distributed: Any = None
    rank_variable, size_variable = "RANK", "WORLD_SIZE"
    passed_rank: int | None = None

    def _group(self) -> tuple[int, int] | None:
        """Return rank and number of processes once the process group is initialized, else None."""
        distributed = self.distributed
        if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
            return None
        return distributed.get_rank(), distributed.get_world_size()

    def hook_optimizers(self, before: Callable[[], None]) -> Callable[[], None]:
        """Call ``before`` before each step of each optimizer; return a function that ends this.

        Raises:
            UserError: The framework has no such hooks.
        """
        raise UserError(
            "The framework has no hooks of optimizers, so their steps cannot be observed.",
            "Choose another task.",
        )

    @property
    def label(self) -> str:
        """The name of this process' directories: ``rank`` if it runs alone, else ``rank{n}``."""
        if self.passed_rank is not None:
            return f"{SINGLE}{self.passed_rank}"
        if (group := self._group()) is not None:
            return f"{SINGLE}{group[0]}"
        rank, size = (os.environ.get(name, "") for name in (self.rank_variable, self.size_variable))
        if rank.isdigit() and size.isdigit() and int(size) > 1:
            return f"{SINGLE}{rank}"  # one of several whose process group is not initialized yet
        return SINGLE

    @property
    def rank(self) -> int:
        """The rank of this process; 0 if it runs alone."""
        return int(self.label.removeprefix(SINGLE) or 0)

    @property
    def process_count(self) -> int:
        """The number of processes of the run; 1 if nothing is known about it."""
        if (group := self._group()) is not None:
            return group[1]
        size = os.environ.get(self.size_variable, "")
        return int(size) if size.isdigit() else 1

    def is_selected(self, ranks: Set[int]) -> bool:
        """Return True if ``ranks`` is empty, which means all, or contains the rank of this process."""
        return not ranks or self.rank in ranks
