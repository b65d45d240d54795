"""``watch``, by which a training script keeps its last steps (docs/watch.md#the-moment-before)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from probe_recording.api import Config
from probe_recording.framework import load_config
from probe_recording.keeping import watch as shared_watch
from probe_recording.keeping.options import KeepOptions, keep_config, parse_options
from probe_recording.keeping.watch import DEFAULT_PATH, list_objects
from torch import nn
from torch.optim import Optimizer

from probe_core.errors import UserError
from probe_pytorch.keeping.keeping_recorder import TorchKeepingRecorder
from probe_pytorch.keeping.rerun import Rerun


class Watch(shared_watch.Watch):
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

    def __init__(self, config: Config, options: KeepOptions, models: Sequence[nn.Module], rerun: Rerun | None) -> None:
        self._rerun = rerun
        self._options = options
        super().__init__(TorchKeepingRecorder(config, options, finds_models=not models), models)

    @property
    def byte_count(self) -> int:
        """Bytes of the kept steps, of the history of their quantities and of the snapshot."""
        return super().byte_count + (0 if self._rerun is None else self._rerun.byte_count)

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
        super().start()

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the snapshot that the step runs again from."""
        rerun = self._rerun
        if rerun is None:
            return
        try:
            rerun.take(args, kwargs, self._options.memory // 2)
        except UserError as error:
            if not self._recorder.keeper.step_count:
                raise
            self._recorder.print_error(error)
        except Exception as error:  # the training must go on whatever the error
            self._recorder.print_error(_create_rerun_error(error))
        self._recorder.keeper.reserve(rerun.byte_count)

    def _handle_step_end(self, function: Callable[..., Any], event_count: int) -> None:
        """Run the step again if it triggered an event."""
        if self._rerun is not None and len(self.events) > event_count:
            event = self.events[-1]
            try:
                place = self._rerun.run(function, self._recorder.config, event)
            except UserError as error:
                self._recorder.print_error(error)
            except Exception as error:  # the training must go on whatever the error
                self._recorder.print_error(_create_rerun_error(error))
            else:
                if place is not None:
                    self._recorder.print_rerun(event.trigger.step, place)


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
    models = list_objects(model, nn.Module, "model", "a torch.nn.Module")
    optimizers = list_objects(optimizer, Optimizer, "optimizer", "a torch.optim.Optimizer")
    rerunning = None
    if rerun:
        if not models or not optimizers:
            raise UserError(
                "rerun=True needs the model and the optimizer, whose states it restores.",
                "Write probe_pytorch.watch(keep_last=10, model=model, optimizer=optimizer, rerun=True).",
            )
        rerunning = Rerun(models, optimizers, _check_state(state))
    elif state:
        raise UserError("state has no effect without rerun=True.", "Give rerun=True, or leave state out.")
    config = keep_config(load_config(None, dump_path=os.fspath(dump_path), level=level, task="statistics"))
    return Watch(config, options, models, rerunning)


def _create_rerun_error(error: Exception) -> UserError:
    return UserError(
        f"The step cannot run again: {type(error).__name__}: {error}.",
        "Leave rerun out if an object of the training cannot be copied or restored.",
    )


def _check_state(state: Sequence[Any]) -> list[Any]:
    for item in state:
        if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict")):
            raise UserError(
                f"state holds a {type(item).__name__}, which has no state_dict and load_state_dict.",
                "Pass objects such as schedulers and a GradScaler.",
            )
    return list(state)
