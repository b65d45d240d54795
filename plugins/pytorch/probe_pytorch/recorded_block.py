"""``record``, by which a block of code is recorded (docs/launchers.md#record)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from probe_recording.framework import RecordedBlock, create_block_config
from torch import nn

from probe_core.errors import UserError
from probe_pytorch import compat_hooks
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.seeds import seed_as_configured

DEFAULT_LEVEL = "mix"
"""The level of a recording without a configuration."""


def record(target: str | os.PathLike[str], *models: nn.Module, **fields: Any) -> RecordedBlock:
    """Record a block of code, or a function that it decorates.

    ::

        with probe_pytorch.record("mine", model):
            for batch in loader:
                train(batch)          # a step ends when the first optimizer in the block has stepped

    Args:
        target: The directory of the run, or the path of a ``config.json``.
        models: The models whose modules are recorded; without any, those that the block calls are found.
        fields: Fields of the configuration, such as ``task``, ``level``, ``step``, ``rank`` and ``stage``, and of
            the section of its task, such as ``list``, ``scope`` and ``summary_mode``.

    Returns:
        A context manager, which is also a decorator. Its ``path`` is the directory of the run.

    Raises:
        UserError: A field has a wrong value, or a model is not a module.
    """
    for model in models:
        check_model(model)
    config = create_block_config(target, DEFAULT_LEVEL, fields)
    seed_as_configured(config)
    return RecordedBlock(lambda: TorchRecorder(config, finds_models=True), models, hook_steps)


def check_model(model: Any) -> None:
    """Raise a UserError if ``model`` is not a module."""
    if not isinstance(model, nn.Module):
        raise UserError(
            f"record() needs a torch.nn.Module after the path, not {type(model).__name__}.",
            'Write record("mine", model), and give other settings by name, such as level="L1".',
        )


def hook_steps(report: Callable[..., None]) -> Callable[[], None]:
    """Call ``report`` with each optimizer that has stepped; return a function that ends this."""
    (handle,) = compat_hooks.register_step_hooks(None, lambda optimizer, *_: report(optimizer))
    remove: Callable[[], None] = handle.remove
    return remove
