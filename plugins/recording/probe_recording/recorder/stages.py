"""The recorders of stages, such as those of an actor and a critic (docs/launchers.md#stages)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

from probe_core.errors import UserError
from probe_recording.recorder.recorder import Recorder
from probe_recording.settings.config import TASKS, Config
from probe_recording.settings.stage_name import check_stage

R = TypeVar("R", bound=Recorder[Any])


class StageRecorders(Generic[R]):
    """The recorders of a process, one for each stage, which count the same steps.

    Args:
        recorder: The recorder of the stage that the configuration names, if it names one.
        create: A function that returns a new recorder for a configuration.
    """

    def __init__(self, recorder: R, create: Callable[[Config], R]) -> None:
        self._first = recorder
        self._create = create
        self._others: dict[str, R] = {}

    def __iter__(self) -> Iterator[R]:
        yield self._first
        yield from self._others.values()

    def select(self, stage: str | None) -> R:
        """Return the recorder of a stage, and stop the others.

        Args:
            stage: The name of the stage; None for the one that the configuration names.

        Raises:
            UserError: There cannot be a stage of this name, or the task has no stages.
        """
        recorder = self._find(stage)
        for other in self:
            if other is not recorder:
                other.stop()
        return recorder

    def _find(self, stage: str | None) -> R:
        config = self._first.config
        if stage is None or stage == config.stage:
            return self._first
        if not isinstance(stage, str):
            raise UserError(f"The stage of start() must be a text, not {stage!r:.40}.", 'For example stage="actor".')
        check_stage(stage, "The stage of start()")
        if stage not in self._others:
            stage_config = replace(config, stage=stage, seed=None, deterministic=False)  # seeds are set only once
            check_stage_support(stage_config, "start()")
            recorder = self._others[stage] = self._create(stage_config)
            recorder.join_at(self._first)
        return self._others[stage]


def check_stage_support(config: Config, subject: str) -> None:
    """Raise a UserError if a configuration with a stage does not write runs that can have stages.

    Args:
        config: The configuration.
        subject: The subject of the error message.
    """
    if config.stage and (config.task not in TASKS or config.online is not None or config.dataloader):
        reason = f'the task "{config.task}"'
        if config.online is not None:
            reason = "calls that are sent to a receiver"
        elif config.dataloader:
            reason = "enable_dataloader"
        raise UserError(
            f'{subject} has the stage "{config.stage}", and {reason} cannot be combined with stages.',
            "Leave out the stage.",
        )
