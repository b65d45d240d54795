"""``PrecisionDebugger``, by which a training script records itself (docs/configuration.md#debugger)."""

from __future__ import annotations

from typing import Any

from probe_recording.api import Config, Debugger
from torch import nn

from probe_pytorch.dataloader import BatchSteps
from probe_pytorch.process import TorchProcess
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.seeds import seed_as_configured


class PrecisionDebugger(Debugger[TorchRecorder, nn.Module]):
    """A recorder of the inputs and outputs of all APIs and modules in a training step.

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        debugger.start(model=model)   # before the forward
        ...                           # forward, backward, optimizer step
        debugger.stop()
        debugger.step()               # the next step is written to a new directory

    There is one debugger in a process: constructing another one with the same settings, or with none, returns
    the first; other settings raise an error. Its methods can also be called on the class. As a context
    manager it starts on entry, and stops and ends the step on exit.

    Args:
        config_path: The configuration, in the format of msprobe's config.json; None for the defaults.
        task: Replaces ``task`` of the file.
        dump_path: Replaces ``dump_path`` of the file.
        level: Replaces ``level`` of the file.
        model: The model or models, for levels L0 and mix, unless ``start`` is given them.
        step: Replaces ``step`` of the file: numbers, and ranges such as ``"2-5"``.

    Raises:
        UserError: The configuration has an error; the message says how to correct it.
    """

    framework = "pytorch"
    process = TorchProcess()
    kind_of_module = nn.Module
    shown_kind = "torch.nn.Module"
    noun = "module"
    variable = "model"

    def _new_recorder(self, config: Config) -> TorchRecorder:
        return TorchRecorder(config)

    def _set_seed(self, config: Config) -> None:
        seed_as_configured(config)

    def _finish_construction(self) -> None:
        if self._recorder.config.dataloader:
            self._batches = BatchSteps(self._end_step, self._begin_step)
            self._batches.install()


_DEBUGGER: Any = PrecisionDebugger
"""The class, whose methods act on the debugger of the process."""


def module_dump(module: nn.Module, dump_name: str) -> None:
    """Record one module and nothing inside it, with the debugger of the process, until ``module_dump_end``.

    Args:
        module: The module.
        dump_name: The name of its records.

    Raises:
        UserError: There is no debugger, ``module`` is not a module, or the name is empty.
    """
    _DEBUGGER.module_dump(module, dump_name)


def module_dump_end() -> None:
    """End the recording of a single module, with the debugger of the process."""
    _DEBUGGER.module_dump_end()
