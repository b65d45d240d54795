"""The recording of a process that another program started, for PROBE_RUN (docs/launchers.md#probe-run)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from probe_recording import TASKS, Config, LateClaim, load_config, report_recording

from probe_core.errors import UserError
from probe_pytorch.follower import Follower
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.seeds import seed_as_configured


class ProcessRecording:
    """A recording that begins now and ends with the process.

    Args:
        path: The path of the configuration. A relative ``dump_path`` in it begins at its directory.
        launch: A text that is equal in all processes of the launch.

    Raises:
        UserError: The configuration has an error.
    """

    def __init__(self, path: Path, launch: str) -> None:
        config = load_config(path)
        config = replace(config, dump_path=(path.parent / config.shown_path).absolute())
        _check_config(config)
        seed_as_configured(config)
        recorder = TorchRecorder(config, finds_models=True)
        if config.online is None:
            recorder.use_claim(LateClaim(recorder, launch))
        self._follower = Follower(config, recorder)
        self._follower.begin()

    def end(self) -> None:
        """Complete the recording and print where it is; print nothing if nothing was recorded."""
        self._follower.end()
        report_recording(self._follower.recorder)

    def withdraw(self) -> None:
        """Leave the recording to the parent process, in a forked child."""
        self._follower.withdraw()


def _check_config(config: Config) -> None:
    """Raise a UserError for settings that need a debugger in the script."""
    if config.task not in TASKS:
        raise UserError(
            f'The task "{config.task}" needs a PrecisionDebugger in the script.',
            "Choose one of these tasks:", TASKS,
        )  # fmt: skip
    if config.level == "debug":
        raise UserError('Level "debug" records what the script passes to save().', "Choose another level.")
