"""``seed_all`` for MindSpore, which seeds all sources of randomness (docs/configuration.md#seed-all)."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

from probe_core.errors import UserError

MAX_SEED = 2**32 - 1
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d")
DROPOUT_CELLS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Set the random seeds of Python, numpy and MindSpore.

    Args:
        seed: A number from 0 to 2**32 - 1.
        mode: True to use deterministic operators.
        rm_dropout: True to let all dropouts return their input unchanged from now on.

    Raises:
        UserError: An argument has a wrong type or value.
    """
    import mindspore

    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        raise UserError(
            f"invalid value for seed: expected an integer from 0 to {MAX_SEED}, got {seed!r:.40}.",
            "For example seed_all(seed=1234).",
        )
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise UserError(
                f"invalid value for {name}: expected True or False, got {value!r:.40}.",
                f"For example seed_all({name}=True).",
            )
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(mode)
    random.seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed)
    mindspore.set_context(deterministic="ON" if mode else "OFF")
    if rm_dropout:
        _remove_dropout(mindspore)


def _remove_dropout(mindspore: Any) -> None:
    """Replace dropout functions and the computation of dropout cells by the identity."""
    for module in (mindspore.ops, mindspore.mint.nn.functional):
        for name in DROPOUTS:
            if hasattr(module, name):
                setattr(module, name, _return_input)
    for module in (mindspore.nn, mindspore.mint.nn):
        for name in DROPOUT_CELLS:
            if hasattr(module, name):
                getattr(module, name).construct = _return_input_of_cell


def _return_input(input: Any, *_arguments: Any, **_settings: Any) -> Any:
    return input


def _return_input_of_cell(_cell: Any, x: Any) -> Any:
    return x
