"""The text that identifies a launch, which its processes inherit by the environment."""

from __future__ import annotations

import os
import time

LAUNCH_VARIABLE = "PROBE_LAUNCH"
"""The environment variable with the text, which is equal in all processes that record one run."""


def create_launch() -> str:
    """Return a text that identifies a launch, of which this process is the first."""
    return f"{os.getpid()}-{time.time_ns()}"


def is_first_process(launch: str) -> bool:
    """Return True for the process that created the text of the launch."""
    return launch.partition("-")[0] == str(os.getpid())
