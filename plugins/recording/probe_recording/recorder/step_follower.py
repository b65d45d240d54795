"""The end of steps by an optimizer, for programs that do not end them themselves."""

from __future__ import annotations

import weakref
from typing import Any

from probe_recording.interrupts import defer_interrupts
from probe_recording.recorder.recorder import Recorder


class StepFollower:
    """An observer of optimizers that ends a step of a recorder and begins the next.

    A step ends when the first optimizer that ever stepped has stepped; other optimizers are ignored. If the program
    dropped this optimizer, such as one that it created anew after loading a checkpoint, the next one that steps
    takes its place.

    Args:
        recorder: The recorder.
        model: The model or models to record; None if the recorder finds them.
    """

    def __init__(self, recorder: Recorder[Any], model: Any = None) -> None:
        self._recorder = recorder
        self._model = model
        self._optimizer: weakref.ref[Any] | None = None

    @property
    def has_stepped(self) -> bool:
        """True once an optimizer has stepped."""
        return self._optimizer is not None

    @defer_interrupts()  # a script that catches KeyboardInterrupt continues with the next step
    def end_step(self, optimizer: Any) -> None:
        """End the step if ``optimizer``, which has just stepped, is the first one."""
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is not optimizer or self._recorder.is_over:
            return
        self._recorder.step()
        self._recorder.start(self._model, None)
