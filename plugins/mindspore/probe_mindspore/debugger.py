"""``PrecisionDebugger``: what a MindSpore program says to record itself (spec/dump 3, 4)."""

from __future__ import annotations

import warnings
from dataclasses import replace

from mindspore import nn
from probe_recording import Config, ConfigWarning, Debugger

from probe_core.errors import UserError
from probe_mindspore.recorder import Recorder


class PrecisionDebugger(Debugger[Recorder, nn.Cell]):
    """Records what every API and Cell of a training step takes in and gives out.

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        debugger.start(model=net)     # before the forward
        ...                           # value_and_grad, optimizer
        debugger.stop()
        debugger.step()               # the next step gets a directory of its own

    There is one debugger in a process: another construction with the same settings, or with none, returns
    the first; with other settings it raises. Its methods can be called on the class.
    As a context manager it starts on entry, and stops and ends the step on exit.

    Args:
        config_path: The configuration, in the peer's format; none for the defaults.
        task, dump_path, level, step: These fields of it, which come before the file.
        model: The Cell or Cells, for levels L0 and mix; at L1 it gives primitives the names of the attributes
            that hold them. ``start(model=…)`` comes before it.

    Raises:
        UserError: A configuration that cannot be followed; the message says how to mend it.
    """

    kind_of_module = nn.Cell
    shown_kind = "mindspore.nn.Cell"
    noun = "Cell"
    variable = "net"

    def _new_recorder(self, config: Config) -> Recorder:
        return Recorder(_followed(config))


def _followed(config: Config) -> Config:
    """The configuration, if MindSpore can be recorded so; what is not done here is refused or said aloud."""
    if config.level == "L2":
        raise UserError(
            'Level "L2" is not offered for MindSpore.', 'Set "level" to one of:', ("L0", "L1", "mix", "debug")
        )
    if config.compile == "tap":
        raise UserError('"compile": "tap" is for PyTorch only.', 'Leave "compile" out.')
    asked = {
        "enable_dataloader": config.dataloader,
        "async_dump": config.asynchronous,
        "support_wrap_ops": config.wrap_ops is not None,
        "risk_level": config.risk_level != "ALL",
        "seed": config.seed is not None,
        "is_deterministic": config.deterministic,
    }
    for name in (name for name, given in asked.items() if given):
        warnings.warn(f'"{name}" is not supported for MindSpore and is ignored', ConfigWarning, stacklevel=4)
    return replace(config, dataloader=False, asynchronous=False, wrap_ops=None)
