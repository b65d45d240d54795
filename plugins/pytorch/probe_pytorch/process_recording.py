"""The recording of a process that another program started, for PROBE_RUN (docs/launchers.md#probe_run)."""

from __future__ import annotations

from probe_recording.api import Config
from probe_recording.framework import LateClaim, report_recording

from probe_pytorch.follower import Follower
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.seeds import seed_as_configured


class ProcessRecording:
    """A recording that begins now and ends with the process.

    Args:
        config: The settings of the recording.
        launch: A text that is equal in all processes of the launch.
    """

    def __init__(self, config: Config, launch: str) -> None:
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
