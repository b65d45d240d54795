"""The callback for Lightning's ``Trainer`` (docs/launchers.md#lightning)."""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:  # the package was called pytorch_lightning before version 2
    from pytorch_lightning import Callback, LightningModule, Trainer

from probe_pytorch.integrations.step_recording import StepRecording


class ProbeCallback(Callback):
    """A callback that records the training steps of a Lightning ``Trainer``.

    A step ends with the batch in which an optimizer has stepped, and holds all batches whose gradients are
    accumulated for it. Validation is not recorded. If a training is resumed, the numbers of its steps continue.

    ::

        trainer = Trainer(max_steps=3, callbacks=[ProbeCallback("mine")])

    Args:
        target: The directory of the run, or the path of a ``config.json``.
        fields: Fields of the configuration, as for ``probe_pytorch.record``.

    Raises:
        UserError: A field has a wrong value.
    """

    def __init__(self, target: str | os.PathLike[str], **fields: Any) -> None:
        self._recording = StepRecording(target, fields)
        self._last_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prepare the recording."""
        self._last_step = trainer.global_step
        self._recording.begin(pl_module, trainer.global_step)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start recording a step, unless this batch continues the step of the previous batch."""
        if not self._recording.is_running:
            self._recording.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the step if an optimizer has stepped."""
        if trainer.global_step != self._last_step:
            self._last_step = trainer.global_step
            self._recording.end_step()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop recording; the next batch of the training continues the step."""
        self._recording.stop()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Complete the recording."""
        self._recording.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Complete the recording, so that its last step can be read."""
        self._recording.end()
