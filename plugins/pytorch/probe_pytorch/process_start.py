"""Start of the recorder in each process that imports torch, for PROBE_RUN (docs/launchers.md#probe_run).

``probe-pytorch-run.pth`` imports this module when an interpreter starts with the variable set, so it imports
nothing heavy itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe_recording.framework import ProcessStarter

from probe_core.errors import UserError

if TYPE_CHECKING:
    from probe_recording.api import Config

    from probe_pytorch.process_recording import ProcessRecording

DATA_LOADER_MODULE = "torch.utils.data._utils.worker"
"""The module with the function that workers of a DataLoader run."""


def start(path: Path, launch: str) -> ProcessRecording:
    """Start the recorder of this process.

    Args:
        path: The path of the configuration.
        launch: A text that is equal in all processes of the launch.

    Raises:
        UserError: The configuration has an error.
    """
    config = load_process_config(path)
    from probe_pytorch.process_recording import ProcessRecording

    return ProcessRecording(config, launch)


def load_process_config(path: Path) -> Config:
    """Return the configuration of a process; a relative ``dump_path`` begins at the directory of the file.

    Raises:
        UserError: The configuration has an error, or needs a debugger in the script.
    """
    from probe_recording.framework import TASKS, load_config

    config = load_config(path)
    if config.task not in TASKS:
        raise UserError(
            f'The task "{config.task}" needs a PrecisionDebugger in the script.', "Choose one of these tasks:", TASKS
        )
    if config.level == "debug":
        raise UserError('Level "debug" records what the script passes to save().', "Choose another level.")
    return replace(config, dump_path=(path.parent / config.shown_path).absolute())


def is_data_loader_worker(process: Any) -> bool:
    """Return True for a process of multiprocessing that loads data for a DataLoader."""
    return getattr(getattr(process, "_target", None), "__module__", "") == DATA_LOADER_MODULE


STARTER = ProcessStarter("torch", start, is_data_loader_worker)
