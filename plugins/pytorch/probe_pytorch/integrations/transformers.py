"""The callback for ``transformers.Trainer`` (docs/launchers.md#transformers)."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from probe_pytorch.integrations.step_recording import StepRecording


class ProbeCallback(TrainerCallback):
    """A callback that records the training steps of a ``transformers.Trainer``.

    A step is a step of the optimizer, with all batches whose gradients it accumulates. Evaluation and prediction
    are not recorded. A training that is resumed continues with the number of its first step.

    ::

        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[ProbeCallback("mine", step="0-2")])

    Args:
        target: The directory of the run, or the path of a ``config.json``.
        fields: Fields of the configuration, as for ``probe_pytorch.record``.

    Raises:
        UserError: A field has a wrong value.
    """

    def __init__(self, target: str | os.PathLike[str], **fields: Any) -> None:
        self._recording = StepRecording(target, fields)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Prepare the recording."""
        self._recording.begin(kwargs["model"], state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start recording a step."""
        self._recording.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the step."""
        self._recording.end_step()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Complete the recording."""
        self._recording.end()
