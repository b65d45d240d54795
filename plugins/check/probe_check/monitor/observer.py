"""The interface between the monitor and the part that observes a framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from probe_recording.api import Process

from probe_check.monitor.figures import Figures
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task


class StepListener(Protocol):
    """The monitor as an observer calls it."""

    @property
    def is_observed(self) -> bool:
        """True if the present step is observed."""

    @property
    def step(self) -> int:
        """The number of the present step."""

    def observe_step_start(self) -> None:
        """Observe what an optimizer is about to use."""

    def observe_step_end(self) -> None:
        """Observe what an optimizer changed, and end the step."""

    def fail(self, error: Exception) -> None:
        """End the monitoring because of an error; the training goes on."""


@dataclass(frozen=True, slots=True)
class TrainingNotes:
    """Results of an observer other than figures.

    Attributes:
        structure: The structure of the models; None if it is not noted.
        module_stacks: The call stack of each module.
        communication_stacks: The call stacks of each collective operation; None if they are not noted.
    """

    structure: Mapping[str, Any] | None = None
    module_stacks: Mapping[str, str] = field(default_factory=dict)
    communication_stacks: Mapping[str, set[str]] | None = None


class StepHook(Protocol):
    """A hook around the steps of an optimizer."""

    def remove(self) -> None:
        """Remove the hook."""


class Observer(ABC):
    """An observer of one framework; it keeps the figures of the present step until ``take``.

    Args:
        models: The models.
        optimizer: The optimizer whose steps are those of the training.
        micro_steps: Number of micro-batches of a step.

    Attributes:
        process: The rank of the process.
    """

    framework: str
    process: Process

    def __init__(self, models: Sequence[Any], optimizer: Any, micro_steps: int) -> None:
        self.models = tuple(models)
        self.optimizer = optimizer
        self.micro_steps = micro_steps
        self._step_hooks: list[StepHook] = []

    @abstractmethod
    def hook_steps(self, listener: StepListener) -> None:
        """Call ``observe_step_start`` and ``observe_step_end`` of the listener around each step of the optimizer."""

    @abstractmethod
    def hook_step_ends(self, callback: Callable[[], None]) -> None:
        """Call a function after each step of the optimizer, when all hooks of the step have run.

        Raises:
            UserError: The framework has no such place.
        """

    @abstractmethod
    def install(self, settings: MonitorSettings, listener: StepListener) -> None:
        """Install the hooks of a configuration.

        Raises:
            UserError: The framework or the optimizer does not support a field that is set.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the hooks of ``install``."""

    def close(self) -> None:
        """Remove all hooks, also those around the steps."""
        self.remove()
        while self._step_hooks:
            self._step_hooks.pop().remove()

    @abstractmethod
    def observe_before(self) -> None:
        """Measure gradients, moments and parameters before a step."""

    @abstractmethod
    def observe_after(self) -> None:
        """Measure parameters after a step."""

    @abstractmethod
    def take(self) -> list[Figures]:
        """Return the figures of the step in the order of observation, and forget them."""

    @abstractmethod
    def end_step(self) -> None:
        """Forget what was counted in the step; called for each step, observed or not."""

    def list_figures(self, tasks: Sequence[Task]) -> list[Figures]:
        """Return the figures of some tasks that were measured so far in this step."""
        return []

    def take_histograms(self) -> Mapping[str, Any]:
        """Return the tensors whose distributions are written, by their tags, and forget them."""
        return {}

    def take_notes(self) -> TrainingNotes:
        """Return what was noted besides figures, and stop noting call stacks of modules."""
        return TrainingNotes()

    def get_group_position(self, process_group: Any) -> tuple[int, tuple[int, ...]]:
        """Return the position of this process in a process group, and the ranks of the group."""
        return 0, (self.process.rank,)
