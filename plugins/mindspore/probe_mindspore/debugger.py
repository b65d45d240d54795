"""PrecisionDebugger, by which a MindSpore program is recorded (docs/configuration.md#debugger)."""

from __future__ import annotations

import warnings
from dataclasses import replace

from mindspore import nn
from probe_recording.api import Config, Debugger
from probe_recording.framework import ConfigWarning

from probe_core.errors import UserError
from probe_mindspore.recorder import MindSporeRecorder
from probe_mindspore.session import MindSporeProcess


class PrecisionDebugger(Debugger[MindSporeRecorder, nn.Cell]):
    """Recorder of the inputs and outputs of all APIs and Cells in the training steps of a program.

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        debugger.start(model=net)     # before the forward
        ...                           # value_and_grad, optimizer
        debugger.stop()
        debugger.step()               # the next step is written to a directory of its own

    A process has one debugger. Constructing it again with the same settings, or with none, returns the first
    one; other settings raise an error. Its methods can be called on the class. As a context manager it starts
    on entry, and stops and ends the step on exit.

    Args:
        config_path: Path of the configuration, a ``config.json`` as for msprobe
            (docs/configuration.md#config-json). Defaults are used without it.
        task, dump_path, level, step: Fields of the configuration, which take precedence over the file.
        model: The Cell or Cells to record at levels L0 and mix. At L1, primitives are named by the
            attributes of these Cells. ``start(model=…)`` takes precedence.

    Raises:
        UserError: The configuration cannot be followed; the message says how to correct it.
    """

    framework = "mindspore"
    process = MindSporeProcess()
    kind_of_module = nn.Cell
    shown_kind = "mindspore.nn.Cell"
    noun = "Cell"
    variable = "net"

    def _new_recorder(self, config: Config) -> MindSporeRecorder:
        return MindSporeRecorder(drop_unsupported_fields(config))


def drop_unsupported_fields(config: Config) -> Config:
    """Return the configuration without the fields that MindSpore does not support; warn about each of them.

    Raises:
        UserError: A level or a mode of compiling that MindSpore does not support.
    """
    if config.level == "L2":
        raise UserError(
            'Level "L2" records the kernels of an NPU, which MindSpore dumps itself (MINDSPORE_DUMP_CONFIG).',
            'Compare its files with: probe parse vc -m DIR -g DIR. To record calls, set "level" to one of:',
            ("L0", "L1", "mix", "debug"),
        )
    if config.compile == "tap":
        raise UserError(
            '"compile": "tap" is supported for PyTorch only, so nothing can be recorded.',
            'Remove "compile" from the configuration.',
        )
    unsupported = {
        "enable_dataloader": config.dataloader,
        "async_dump": config.asynchronous,
        "support_wrap_ops": config.wrap_ops is not None,
        "risk_level": config.risk_level != "ALL",
        "seed": config.seed is not None,
        "is_deterministic": config.deterministic,
    }
    for name in (name for name, is_set in unsupported.items() if is_set):
        text = f'"{name}" is not supported for MindSpore and is ignored; remove it from the configuration'
        warnings.warn(text, ConfigWarning, stacklevel=4)
    return replace(config, dataloader=False, asynchronous=False, wrap_ops=None)
