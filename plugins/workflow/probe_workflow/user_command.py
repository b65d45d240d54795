"""The command line that the user wants to check, with the recorder put in front of its script."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from probe_core.errors import UserError

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?$")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of the interpreter that are followed by a value."""

LAUNCHER_MODULES = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)
"""Modules that start the processes of a training, whose script is named later in the command line."""


def insert_recorder(command: Sequence[str], recorder: Sequence[str]) -> list[str]:
    """Return a command line that runs its script under the recorder.

    Args:
        command: The user's command, such as ``python train.py`` or ``torchrun --nproc-per-node 2 train.py``.
        recorder: The path of the program that records a script, and its options.

    Raises:
        UserError: The command names no Python script.
    """
    position = _find_script(command)
    inserted = [*command[:position], *recorder, *command[position:]]
    return inserted if position else [sys.executable, *inserted]


def _find_script(command: Sequence[str]) -> int:
    """Return the position of the script, or of ``-m`` before a module."""
    first_word = 0
    if command and _PYTHON.match(Path(command[0]).name):
        position = _skip_interpreter_options(command)
        option, *names = (*command[position : position + 2], "")
        is_launcher = option == "-m" and names[0] in LAUNCHER_MODULES
        if option not in ("", "-c") and not is_launcher:
            return position
        first_word = position + 2
    for position in range(first_word, len(command)):
        if command[position].endswith(".py") and Path(command[position]).is_file():
            return position
    raise UserError(
        f"The command {shlex.join(command)!r:.200} names no Python script that exists.",
        "Give the command as you would type it, after --: probe check GOLDEN -- python train.py",
    )


def _skip_interpreter_options(command: Sequence[str]) -> int:
    """Return the position of the first word after the options of the interpreter."""
    position = 1
    while position < len(command) and command[position].startswith("-") and command[position] not in ("-m", "-c"):
        position += 2 if command[position] in _OPTIONS_WITH_VALUE else 1
    return position
