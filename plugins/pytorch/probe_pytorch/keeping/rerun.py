"""A second run of a step, with tensors, from a snapshot of the training before it (docs/watch.md#rerun)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from probe_recording.api import Config
from probe_recording.keeping.event import Event
from probe_recording.keeping.watch import unwrap_single
from torch import nn
from torch.optim import Optimizer

from probe_core.errors import UserError
from probe_pytorch.keeping.snapshot import Snapshot, copy_batch, count_batch_bytes
from probe_pytorch.recorder import TorchRecorder

RERUN_DIRECTORY = "rerun"
"""The directory below that of the run in which steps that run again are written."""


class Rerun:
    """The snapshot before the current step, and the second run of that step.

    Args:
        models: The models.
        optimizers: The optimizers.
        others: Objects with ``state_dict`` and ``load_state_dict``.

    Attributes:
        byte_count: Bytes of the snapshot.
    """

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], others: Sequence[Any]) -> None:
        self._parts = models, optimizers, others
        self._snapshot: Snapshot | None = None
        self._batch: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
        self.is_off = False
        self.byte_count = 0

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> None:
        """Take the snapshot before a step.

        Args:
            args: The arguments of the step function, whose tensors are copied.
            kwargs: Its keyword arguments.
            limit: Bytes that the snapshot may take.

        Raises:
            UserError: The snapshot is too large, or the training has several processes. No step runs again
                then.
        """
        if self.is_off:
            return
        self._snapshot = None  # release the last one first
        self._refuse_several()
        self._snapshot = Snapshot(*self._parts)
        self._batch = copy_batch(args), copy_batch(kwargs)
        self.byte_count = self._snapshot.byte_count + count_batch_bytes(args) + count_batch_bytes(kwargs)
        if self.byte_count > limit:
            what = f"A snapshot of the training takes {self.byte_count:,} bytes, of which {limit:,} are allowed."
            fix = 'Allow more with keep_memory, such as keep_memory="4GiB", or leave rerun out.'
            self._turn_off()
            raise UserError(what, fix)

    def _refuse_several(self) -> None:
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise UserError(
                "A step cannot run again in one of several processes, because it would wait for the others.",
                "Leave rerun out, and reproduce the step in a single process.",
            )

    def _turn_off(self) -> None:
        self._snapshot, self._batch, self.byte_count, self.is_off = None, ((), {}), 0, True

    def run(self, function: Callable[..., Any], config: Config, event: Event) -> str | None:
        """Run the step again from the snapshot and record it with tensors; then restore the present state.

        Args:
            function: The step function.
            config: The settings of the recording.
            event: The event that the step triggered.

        Returns:
            The directory of the new recording; None if there is none.

        Raises:
            UserError: The recording cannot be written.
        """
        if self._snapshot is None:
            return None
        present = Snapshot(*self._parts)
        args, kwargs = self._batch
        recorder = TorchRecorder(_create_tensor_config(config))
        recorder.reports_missing = False
        try:
            self._snapshot.restore()
            recorder.set_step(event.trigger.step)
            recorder.start(unwrap_single(self._parts[0]), None)
            with suppress(Exception):  # a step that raised before raises again
                function(*args, **kwargs)
            recorder.step()
        finally:
            recorder.complete()
            present.restore()
        return recorder.config.shown_path if recorder.complete_steps else None


def _create_tensor_config(config: Config) -> Config:
    """Return the settings of the recording of a step that runs again."""
    return replace(
        config, task="tensor", level="mix", dump_path=config.dump_path / RERUN_DIRECTORY,
        shown_path=f"{config.shown_path.rstrip('/')}/{RERUN_DIRECTORY}",
    )  # fmt: skip
