"""``watch``, by which a training script keeps its last steps (docs/watch.md#the-moment-before)."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from probe_recording import Cause, Config, Event, KeepOptions, load_config, parse_options
from torch import nn
from torch.optim import Optimizer

from probe_core.errors import UserError
from probe_pytorch.keeping.keeping_recorder import KeepingRecorder
from probe_pytorch.keeping.rerun import Rerun, single_or_all
from probe_pytorch.keeping.settings import keep_config

T = TypeVar("T")
DEFAULT_PATH = "probe-watch"


class Watch:
    """An observer of a training, which keeps the statistics of its last steps and writes them at an event.

    A step is a call of ``step``, a ``with`` block, or what happens between ``start`` and ``stop``::

        watch = probe_pytorch.watch(keep_last=10, model=model)
        for batch in loader:
            with watch:
                loss = model(batch).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    Use ``probe_pytorch.watch`` to construct it.

    Args:
        config: The settings of the recording.
        options: The settings of keeping.
        models: The models; empty to find them when they are called.
        rerun: What a step runs again from; None to run no step again.
    """

    def __init__(
        self, config: Config, options: KeepOptions, models: Sequence[nn.Module], rerun: Rerun | None
    ) -> None:
        self._models = models
        self._options = options
        self._rerun = rerun
        self._recorder = KeepingRecorder(config, options, finds_models=not models)
        self._is_running = False
        self._seen_error = 0
        atexit.register(self.finish)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far."""
        return tuple(self._recorder.keeper.events)

    @property
    def byte_count(self) -> int:
        """Bytes of the kept steps, of the history of their quantities and of the snapshot."""
        return self._recorder.keeper.byte_count + (0 if self._rerun is None else self._rerun.byte_count)

    # -- steps -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a step.

        Raises:
            UserError: The watch has ``rerun=True``, which needs ``step``.
        """
        if self._rerun is not None:
            raise UserError(
                "rerun=True needs a step function, because a step that begins with start() cannot run again.",
                "Call watch.step(function, batch) for each step, or leave rerun out.",
            )
        self._start()

    def _start(self) -> None:
        if self._recorder.signal_hook is not None:
            self._recorder.signal_hook.install()
        self._recorder.start(single_or_all(self._models), None)
        self._is_running = True

    def stop(self) -> None:
        """End the step, and write the last steps if it triggers an event."""
        if self._is_running:
            self._is_running = False
            self._recorder.step()

    def __enter__(self) -> Watch:
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
        rerun = self._rerun
        if rerun is not None:
            self._take_snapshot(rerun, args, kwargs)
        event_count = len(self.events)
        self._start()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if _is_failure(error):
                self._interrupt(error)
                self._run_again(function, event_count)
            else:
                self.stop()
            raise
        self.stop()
        self._run_again(function, event_count)
        return result

    def _take_snapshot(self, rerun: Rerun, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            rerun.take(args, kwargs, self._options.memory // 2)
        except UserError as error:
            if not self._recorder.keeper.step_count:
                raise
            self._recorder.tell_error(error)
        except Exception as error:  # the training must go on whatever the error
            self._recorder.tell_error(_cannot_run_again(error))
        self._recorder.keeper.reserve(rerun.byte_count)

    def _run_again(self, function: Callable[..., Any], event_count: int) -> None:
        if self._rerun is not None and len(self.events) > event_count:
            event = self.events[-1]
            try:
                place = self._rerun.run(function, self._recorder.config, event)
            except UserError as error:
                self._recorder.tell_error(error)
            except Exception as error:  # the training must go on whatever the error
                self._recorder.tell_error(_cannot_run_again(error))
            else:
                if place is not None:
                    self._recorder.tell_rerun(event.trigger.step, place)

    def _interrupt(self, error: BaseException) -> None:
        self._is_running = False
        self._seen_error = id(error)
        self._recorder.interrupt(Cause.EXCEPTION, type(error).__name__)

    def loss(self, value: Any) -> None:
        """Pass the loss of the step, which is then observed instead of those of backward passes.

        Args:
            value: A tensor or a number. Call this again for each further loss of the step.
        """
        self._recorder.add_loss(value)

    # -- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """End the observation; called when the process ends, where an uncaught exception is an event."""
        atexit.unregister(self.finish)
        error = getattr(sys, "last_value", None)
        if isinstance(error, Exception) and id(error) != self._seen_error and not hasattr(sys, "ps1"):
            self._interrupt(error)
        self._recorder.finish()


def watch(
    keep_last: int = 10,
    model: nn.Module | Sequence[nn.Module] | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    dump_path: str | Path = DEFAULT_PATH,
    level: str = "L0",
    keep_memory: int | str | None = None,
    signal: str | None = None,
    rerun: bool = False,
    state: Sequence[Any] = (),
    events: int | None = None,
) -> Watch:
    """Return an observer that keeps the last steps of a training and writes them at an event.

    Args:
        keep_last: Number of steps to keep.
        model: The model or models; None to find them when they are called.
        optimizer: The optimizer or optimizers, which ``rerun`` needs.
        dump_path: The directory of the run, which is created at the first event.
        level: What is recorded: modules (L0), APIs (L1), or both (mix).
        keep_memory: Bytes that kept steps and a snapshot may take, such as ``"1GiB"``; 256 MiB by default.
        signal: The name of a signal at which the steps are written, such as ``"USR1"``.
        rerun: True to run a failing step again with tensors. It needs ``model``, ``optimizer`` and ``step``.
        state: Further objects that a step changes, with ``state_dict`` and ``load_state_dict``.
        events: Number of events that are written; 10 by default.

    Raises:
        UserError: An argument has a wrong type or value.
    """
    options = parse_options(keep_last, keep_memory, signal, rerun, events)
    models = _several(model, nn.Module, "model", "a torch.nn.Module")
    optimizers = _several(optimizer, Optimizer, "optimizer", "a torch.optim.Optimizer")
    rerunning = None
    if rerun:
        if not models or not optimizers:
            raise UserError(
                "rerun=True needs the model and the optimizer, whose states it restores.",
                "Write probe_pytorch.watch(keep_last=10, model=model, optimizer=optimizer, rerun=True).",
            )
        rerunning = Rerun(models, optimizers, _checked_state(state))
    elif state:
        raise UserError("state has no effect without rerun=True.", "Give rerun=True, or leave state out.")
    config = keep_config(load_config(None, dump_path=os.fspath(dump_path), level=level, task="statistics"))
    return Watch(config, options, models, rerunning)


def _cannot_run_again(error: Exception) -> UserError:
    return UserError(
        f"The step cannot run again: {type(error).__name__}: {error}.",
        "Leave rerun out if an object of the training cannot be copied or restored.",
    )


def _several(value: Any, kind: type, name: str, shown: str) -> list[Any]:
    values = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, kind) for item in values):
        raise UserError(
            f"{name} must be {shown} or a list of them, not {type(value).__name__}.", f"Pass the {name}."
        )
    return values


def _checked_state(state: Sequence[Any]) -> list[Any]:
    for item in state:
        if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict")):
            raise UserError(
                f"state holds a {type(item).__name__}, which has no state_dict and load_state_dict.",
                "Pass objects such as schedulers and a GradScaler.",
            )
    return list(state)


def _is_failure(error: BaseException) -> bool:
    """Return True for an exception that is an event: all but an interrupt and an exit without an error."""
    if isinstance(error, SystemExit):
        return bool(error.code)
    return isinstance(error, Exception)
