"""What probe-pytorch contributes."""

from __future__ import annotations

from probe_core.hookspecs import hookimpl
from probe_core.specs import CommandSpec, ReaderSpec


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    """The reader of PyTorch runs."""
    return [
        ReaderSpec(
            name="pytorch",
            summary="dump.json and debug.json with .pt files, of mindstudio-probe 1.0, 8.3 and 26",
            framework="pytorch",
            factory="probe_pytorch.reader:PyTorchReader",
        )
    ]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """The demonstration on a recorded pair of runs that ships with this package."""
    return [
        CommandSpec(
            name="demo",
            summary="Compare a recorded pair of runs with a known fault, to see what probe shows.",
            factory="probe_pytorch.demo:demo",
        )
    ]
