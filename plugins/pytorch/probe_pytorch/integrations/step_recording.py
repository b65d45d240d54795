"""The recording of a training whose framework reports the beginning and end of each step."""

from __future__ import annotations

import atexit
import os
from typing import Any

from probe_recording.framework import create_block_config, report_recording
from torch import nn

from probe_pytorch.recorded_block import DEFAULT_LEVEL
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.seeds import seed_as_configured


class StepRecording:
    """A recording that a callback drives.

    Args:
        target: The directory of the run, or the path of a ``config.json``.
        fields: Fields of the configuration.

    Attributes:
        is_running: True between ``start`` and ``stop``.
    """

    def __init__(self, target: str | os.PathLike[str], fields: dict[str, Any]) -> None:
        self._config = create_block_config(target, DEFAULT_LEVEL, fields)
        self._recorder: TorchRecorder | None = None
        self._model: nn.Module | None = None
        self.is_running = False

    def begin(self, model: nn.Module, step: int) -> None:
        """Prepare the recording of a training.

        Args:
            model: The model.
            step: The number of the first step, which is not 0 in a training that is resumed. Recorded steps
                before it are left in place.
        """
        self.end()
        seed_as_configured(self._config)
        self._model = model
        self._recorder = TorchRecorder(self._config, finds_models=True)
        if step:
            self._recorder.set_step(step)
        atexit.register(self.end)

    def start(self) -> None:
        """Start recording the current step, or go on after ``stop``."""
        if self._recorder is not None:
            self._recorder.start(self._model, None)
            self.is_running = True

    def stop(self) -> None:
        """Stop recording; the step goes on."""
        if self._recorder is not None:
            self._recorder.stop()
            self.is_running = False

    def end_step(self) -> None:
        """Stop recording, and write the step."""
        if self._recorder is not None:
            self._recorder.step()
            self.is_running = False

    def end(self) -> None:
        """Complete the recording, and print where it is."""
        recorder, self._recorder, self._model = self._recorder, None, None
        self.is_running = False
        if recorder is not None:
            atexit.unregister(self.end)
            recorder.finish()
            report_recording(recorder)
