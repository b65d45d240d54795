"""Options that a runner is opened with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError

SEED = 1234
"""Default of the number from which the seeds of random inputs are derived."""


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Options that a runner is opened with.

    Attributes:
        dump: The ``dump.json`` whose calls are run; the tensor files are next to it.
        device: ``"cpu"`` or the index of an accelerator. If empty, an accelerator is used if there is one, and
            otherwise the CPU.
        jit_compile: True to compile operators just in time, on devices with that option.
        error_directory: The directory for the data of calls that do not pass; None to save no data.
        threads: The number of threads that the reference may use.
        seed: The number from which the seeds of random inputs are derived.
        is_ours: True if probe recorded the calls. Other recorders may write different gradients.
    """

    dump: Path
    device: str = ""
    jit_compile: bool = False
    error_directory: Path | None = None
    threads: int = 1
    seed: int = SEED
    is_ours: bool = True


def create_device_error(device: str, count: int | None = None) -> UserError:
    """Return the error for a device of ``-d`` that this machine does not have.

    Args:
        device: The device as the user wrote it.
        count: The number of accelerators of this machine; None if it has no accelerator.
    """
    if count is None:
        return UserError(
            f"There is no accelerator here for device {device}, so no call can be run on it.",
            "Give -d cpu, or run on a machine with an accelerator.",
        )
    return UserError(
        f"There is no device {device} on this machine.",
        "Give one of these with -d:",
        [str(i) for i in range(count)],
    )
