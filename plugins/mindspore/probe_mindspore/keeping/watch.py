"""``watch``, by which a MindSpore program keeps its last steps (docs/watch.md#mindspore)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mindspore import nn
from probe_recording.api import Config
from probe_recording.framework import load_config
from probe_recording.keeping.keeping_recorder import KeepingRecorder, MemorySession
from probe_recording.keeping.options import KeepOptions, keep_config, parse_options
from probe_recording.keeping.watch import DEFAULT_PATH, Watch, list_objects

from probe_core.errors import UserError
from probe_mindspore import compat, compat_passes
from probe_mindspore.capture.phases import PhaseCapture
from probe_mindspore.recorder import MindSporeRecorder
from probe_mindspore.session import MindSporeSession


class MindSporeMemorySession(MemorySession, MindSporeSession):
    """A session whose files stay in memory."""


class MindSporeKeepingRecorder(KeepingRecorder[MindSporeSession], MindSporeRecorder):
    """A recorder that keeps the last steps of a MindSpore process in memory.

    Args:
        config: The settings of the recording.
        options: The settings of keeping.
    """

    session_class = MindSporeMemorySession

    def __init__(self, config: Config, options: KeepOptions) -> None:
        super().__init__(config)
        self.captures.append(PhaseCapture(self._eager.suspend))
        self.keep(options)


def watch(
    keep_last: int = 10,
    model: nn.Cell | Sequence[nn.Cell] | None = None,
    *,
    dump_path: str | Path = DEFAULT_PATH,
    level: str = "L0",
    keep_memory: int | str | None = None,
    signal: str | None = None,
    rerun: bool = False,
    events: int | None = None,
) -> Watch:
    """Return an observer that keeps the last steps of a PyNative training and writes them at an event.

    Args:
        keep_last: Number of steps to keep.
        model: The model or models. Level L1 does not need it.
        dump_path: The directory of the run, which is created at the first event.
        level: What is recorded: Cells (L0), APIs (L1), or both (mix).
        keep_memory: Bytes that kept steps may take, such as ``"1GiB"``; 256 MiB by default.
        signal: The name of a signal at which the steps are written, such as ``"USR1"``.
        rerun: False, because MindSpore cannot restore the states of kernels that draw random numbers.
        events: Number of events that are written; 10 by default.

    Raises:
        UserError: An argument has a wrong type or value, or the program cannot be observed.
    """
    options = parse_options(keep_last, keep_memory, signal, rerun, events)
    models = list_objects(model, nn.Cell, "model", "a mindspore.nn.Cell")
    if options.rerun:
        raise UserError(
            "rerun=True is not possible with MindSpore, because the random states of its kernels, such as "
            "that of dropout, cannot be read or restored, so the training would go on with other numbers.",
            "Leave rerun out.",
        )
    if not models and level != "L1":
        raise UserError(
            f"Level {level} needs the model, whose Cells it records.",
            "Write probe_mindspore.watch(keep_last=10, model=net).",
        )
    compat.refuse_compiled_mode(
        "Steps cannot be observed in GRAPH_MODE, in which they run as compiled graphs.", "watch()"
    )
    if not compat_passes.shows_passes():
        raise UserError(
            "This version of MindSpore does not show the losses and gradients of steps.",
            "Install MindSpore 2.10: pip install mindspore==2.10.0",
        )
    config = keep_config(load_config(None, dump_path=os.fspath(dump_path), level=level, task="statistics"))
    return Watch(MindSporeKeepingRecorder(config, options), models)
