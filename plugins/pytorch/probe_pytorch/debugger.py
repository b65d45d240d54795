"""``PrecisionDebugger``: what a training script says to record itself (spec/dump 3, 4)."""

from __future__ import annotations

from probe_recording import Config, Debugger
from torch import nn

from probe_core.errors import UserError
from probe_pytorch.dataloader import BatchSteps
from probe_pytorch.recorder import Recorder
from probe_pytorch.seeds import seed_all


class PrecisionDebugger(Debugger[Recorder, nn.Module]):
    """Records what every API and module of a training step takes in and gives out.

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        debugger.start(model=model)   # before the forward
        ...                           # forward, backward, optimizer step
        debugger.stop()
        debugger.step()               # the next step gets a directory of its own

    There is one debugger in a process: another construction with the same settings, or with none, returns
    the first; with other settings it raises. Its methods can be called on the class.
    As a context manager it starts on entry, and stops and ends the step on exit.

    Args:
        config_path: The configuration, in the peer's format; none for the defaults.
        task, dump_path, level, step: These fields of it, which come before the file.
        model: The model or models, for levels L0 and mix; ``start(model=…)`` comes before it.

    Raises:
        UserError: A configuration that cannot be followed; the message says how to mend it.
    """

    kind_of_module = nn.Module
    shown_kind = "torch.nn.Module"
    noun = "module"
    variable = "model"

    def _new_recorder(self, config: Config) -> Recorder:
        if config.seed is not None or config.deterministic:
            seed_all(1234 if config.seed is None else config.seed, config.deterministic)
        return Recorder(config)

    def _constructed(self) -> None:
        if self._recorder.config.dataloader:
            self._batches = BatchSteps(self._recorder.step, lambda: self._recorder.start(self._model, None))
            self._batches.install()

    def monitor(self, model: nn.Module) -> None:
        """Of the peer's grad_probe: not offered; level L0 records every parameter's gradient."""
        raise UserError(
            "monitor belongs to the task grad_probe, which probe does not have.",
            'Record with "level": "L0"; parameters_grad holds every gradient.',
        )
