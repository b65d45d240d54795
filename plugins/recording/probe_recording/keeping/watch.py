"""The observer of a training script, for any framework (docs/watch.md#the-moment-before)."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from probe_core.errors import UserError
from probe_recording.keeping.event import Cause, Event
from probe_recording.keeping.keeping_recorder import KeepingRecorder

T = TypeVar("T")
W = TypeVar("W", bound="Watch")
DEFAULT_PATH = "probe-watch"


class Watch:
    """An observer of a training, which keeps the statistics of its last steps and writes them at an event.

    A step is a call of ``step``, a ``with`` block, or the code between ``start`` and ``stop``.

    Args:
        recorder: The recorder of the steps.
        models: The models; empty if the recorder finds them or does not need models.
    """

    def __init__(self, recorder: KeepingRecorder[Any], models: Sequence[Any]) -> None:
        self._models = models
        self._recorder = recorder
        self._is_running = False
        self._handled_error_id = 0
        atexit.register(self.finish)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far."""
        return tuple(self._recorder.keeper.events)

    @property
    def byte_count(self) -> int:
        """Bytes of the steps in memory, of the history of their quantities and of the snapshot, if there is one."""
        return self._recorder.keeper.byte_count

    # -- steps -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a step.

        Raises:
            UserError: The watch has ``rerun=True``, which needs ``step``.
        """
        self._start()

    def _start(self) -> None:
        if self._recorder.signal_hook is not None:
            self._recorder.signal_hook.install()
        self._recorder.start(unwrap_single(self._models), None)
        self._is_running = True

    def stop(self) -> None:
        """End the step, and write the last steps if the step triggers an event."""
        if self._is_running:
            self._is_running = False
            self._recorder.step()

    def __enter__(self: W) -> W:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and _is_failure(error):
            self._interrupt(error)
        else:
            self.stop()

    def step(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a step and return what the function returns; with ``rerun=True``, run a failing step again.

        Args:
            function: The step: forward, backward and the step of the optimizer.
            args: The arguments of the function, such as the batch.
            kwargs: Its keyword arguments.
        """
        self._prepare(args, kwargs)
        event_count = len(self.events)
        self._start()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if _is_failure(error):
                self._interrupt(error)
                self._handle_step_end(function, event_count)
            else:
                self.stop()
            raise
        self.stop()
        self._handle_step_end(function, event_count)
        return result

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Prepare a step that is passed as a function, before it is recorded."""

    def _handle_step_end(self, function: Callable[..., Any], event_count: int) -> None:
        """Handle the end of a step that is passed as a function.

        Args:
            function: The step.
            event_count: Number of events before the step.
        """

    def _interrupt(self, error: BaseException) -> None:
        self._is_running = False
        self._handled_error_id = id(error)
        self._recorder.interrupt(Cause.EXCEPTION, type(error).__name__)

    def loss(self, value: Any) -> None:
        """Pass the loss of the step, which is then observed instead of the losses of backward passes.

        Args:
            value: A tensor or a number. Call this again for each further loss of the step.
        """
        self._recorder.add_loss(value)

    # -- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """End the observation. At the end of the process, an uncaught exception is an event."""
        atexit.unregister(self.finish)
        error = getattr(sys, "last_value", None)
        if isinstance(error, Exception) and id(error) != self._handled_error_id and not hasattr(sys, "ps1"):
            self._interrupt(error)
        self._recorder.finish()


def unwrap_single(models: Sequence[Any]) -> Any:
    """Return a single model, whose modules get names without a number, or the list of several models."""
    return models[0] if len(models) == 1 else list(models) or None


def list_objects(value: Any, kind: type, name: str, shown: str) -> list[Any]:
    """Return an argument as a list; it may be an object, a list or tuple of objects, or None.

    Args:
        value: The argument.
        kind: The class of the objects.
        name: The name of the argument.
        shown: The name of the class with its article, for the error message.

    Raises:
        UserError: An object has another class.
    """
    values = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, kind) for item in values):
        raise UserError(f"{name} must be {shown} or a list of them, not {type(value).__name__}.", f"Pass the {name}.")
    return values


def _is_failure(error: BaseException) -> bool:
    """Return True for an exception that is an event: not an interrupt, and not an exit without an error."""
    if isinstance(error, SystemExit):
        return bool(error.code)
    return isinstance(error, Exception)
