"""Recording of the steps that follow an alert (docs/monitor.md#record-the-next-steps)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class StepRecorder:
    """A recorder of the steps after the first alert."""

    def __init__(self, framework: str, directory: Path, models: Sequence[Any]) -> None:
        self._framework = framework

    def start(self, step: int, count: int) -> None:
        """Record steps."""

    def finish(self) -> None:
        """End the recording."""
