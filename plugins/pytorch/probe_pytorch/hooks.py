"""What probe-pytorch contributes."""

from __future__ import annotations

from probe_core.hookspecs import hookimpl
from probe_core.specs import CommandSpec, DumperSpec, ReaderSpec


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
def probe_dumpers() -> list[DumperSpec]:
    """The recorder of PyTorch programs."""
    return [
        DumperSpec(
            name="pytorch",
            summary="PrecisionDebugger, and probe run for scripts that were not touched",
            framework="pytorch",
            levels=("L0", "L1", "mix", "L2", "debug"),
            tasks=("statistics", "tensor", "structure", "overflow_check"),
            factory="probe_pytorch.debugger:PrecisionDebugger",
        )
    ]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Recording a script, and the demonstration."""
    return [
        CommandSpec(
            name="run",
            summary="Record a PyTorch training script that was not touched.",
            factory="probe_pytorch.run_command:run",
        ),
        CommandSpec(
            name="demo",
            summary="Record two small training runs, one with a fault, and find it.",
            factory="probe_pytorch.demo:demo",
        ),
    ]
