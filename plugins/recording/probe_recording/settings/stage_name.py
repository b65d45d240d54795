"""The names of stages, which are directories between a step and its ranks (docs/launchers.md#stages)."""

from __future__ import annotations

import os
import re

from probe_core.errors import UserError

STAGE_VARIABLE = "PROBE_STAGE"
"""The environment variable that replaces ``stage`` of a configuration."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_OTHER_DIRECTORY = re.compile(r"(rank|proc|step)\d*|graph|pynative|dump_tensor_data|kernels")


def read_stage_variable() -> str | None:
    """Return the stage that the environment names; None if it names none."""
    return os.environ.get(STAGE_VARIABLE) or None


def check_stage(name: str, subject: str) -> str:
    """Return the name of a stage.

    Args:
        name: The name; empty for no stage.
        subject: The subject of the error message.

    Raises:
        UserError: A stage cannot have this name.
    """
    if name and (not _NAME.fullmatch(name) or _OTHER_DIRECTORY.fullmatch(name)):
        raise UserError(
            f"{subject} is {name!r:.80}, which cannot be the name of a stage.",
            'Use a letter, then letters, digits, _ and -, such as "actor"; names such as rank0 are taken.',
        )
    return name


def join_label(stage: str, label: str) -> str:
    """Return the path of a rank's directory below a step, such as ``actor/rank0``."""
    return f"{stage}/{label}" if stage else label
