"""``record``, by which a block of code is recorded (docs/launchers.md#record)."""

from __future__ import annotations

import os
from typing import Any

from mindspore import nn
from probe_recording.framework import RecordedBlock, create_block_config

from probe_core.errors import UserError
from probe_mindspore.debugger import drop_unsupported_fields
from probe_mindspore.recorder import MindSporeRecorder


def record(target: str | os.PathLike[str], *cells: nn.Cell, **fields: Any) -> RecordedBlock:
    """Record a block of code, or a function that it decorates, as one step.

    ::

        with probe_mindspore.record("mine", net):
            train_one_step(batch)

    Args:
        target: The directory of the run, or the path of a ``config.json``.
        cells: The Cells that are recorded; without any, API calls are recorded (level L1).
        fields: Fields of the configuration, such as ``task``, ``level``, ``rank`` and ``stage``, and of the
            section of its task, such as ``list``, ``scope`` and ``summary_mode``.

    Returns:
        A context manager, which is also a decorator. A second block is the next step.

    Raises:
        UserError: A field has a wrong value, or a model is not a Cell.
    """
    for cell in cells:
        if not isinstance(cell, nn.Cell):
            raise UserError(
                f"record() needs a mindspore.nn.Cell after the path, not {type(cell).__name__}.",
                'Write record("mine", net), and give other settings by name, such as level="L1".',
            )
    config = drop_unsupported_fields(create_block_config(target, "mix" if cells else "L1", fields))
    if config.modules and not cells:
        raise UserError(
            f'record() needs the Cells at level "{config.level}", which records them.',
            'Write record("mine", net), or level="L1".',
        )
    return RecordedBlock(lambda: MindSporeRecorder(config), cells)
