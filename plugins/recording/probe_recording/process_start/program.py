"""The program of a process, by its command line, and whether PROBE_RUN applies to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum

OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
"""Options of the interpreter whose value is the next argument."""

OWN_COMMANDS = ("probe", "probe.exe", "probe_core", "probe_core.cli", "probe_core.cli.main")
"""Commands and modules that are probe itself."""
INSTALLERS = ("pip", "pip3", "pip.exe", "ensurepip")
COMPILE_WORKERS = ("torch/_inductor/compile_worker/", "torch._inductor.compile_worker")
"""Parts of the path and the name of the program that compiles kernels for torch."""
RESOURCE_TRACKER = "multiprocessing.resource_tracker"
CHILD_STARTERS = ("multiprocessing.spawn", "multiprocessing.forkserver", "--multiprocessing-fork")
"""Words in the command lines of processes that multiprocessing starts from nothing, and of its fork server."""


class ProgramKind(Enum):
    """The kinds of programs that PROBE_RUN distinguishes."""

    USER = "a program of the user"
    CHILD = "a process of multiprocessing, which has not received its task yet"
    OWN = "a command of probe"
    HELPER = "a process that helps a program and computes nothing for it"


def find_kind(arguments: Sequence[str] | None = None) -> ProgramKind:
    """Return the kind of the program.

    Args:
        arguments: A command line that begins with the interpreter; None for the command line of this process.
    """
    arguments = sys.orig_argv if arguments is None else arguments
    program = _find_program(arguments[1:])
    name = program.replace("\\", "/").rpartition("/")[2]
    if name in OWN_COMMANDS:
        return ProgramKind.OWN
    if RESOURCE_TRACKER in program or name in INSTALLERS or any(part in program for part in COMPILE_WORKERS):
        return ProgramKind.HELPER
    if any(word in program for word in CHILD_STARTERS) or CHILD_STARTERS[-1] in arguments:
        return ProgramKind.CHILD
    return ProgramKind.USER


def _find_program(arguments: Sequence[str]) -> str:
    """Return the path of the script, the name of the module, or the code that an interpreter runs."""
    rest = iter(arguments)
    for argument in rest:
        if argument in OPTIONS_WITH_VALUE:
            next(rest, "")
        elif argument.startswith(("--", "-W", "-X")):
            continue
        elif argument.startswith("-"):
            for option in ("c", "m"):
                letters, separator, value = argument[1:].partition(option)
                if (separator and letters.isalpha()) or argument[1:2] == option:
                    return value or next(rest, "")
        else:
            return argument
    return ""
