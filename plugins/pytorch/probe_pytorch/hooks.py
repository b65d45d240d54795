"""The contributions of probe-pytorch to probe: reader, recorder, runner, references and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec, ReaderSpec

if TYPE_CHECKING:
    from probe_precheck.api import ReferenceSpec, RunnerSpec
    from probe_recording.api import CaptureSpec, DumperSpec, InterceptorSpec, RecorderSpec


FRAMEWORK_FILES = (
    "/torch/_", "/torch/nn/modules/", "/torch/nn/functional.py", "/torch/nn/parallel/", "/torch/optim/",
    "/torch/functional.py", "/torch/autograd/", "/torch/overrides.py", "/torch/utils/_", "/torch/utils/data/",
    "/torch/utils/checkpoint.py", "/torch/distributed/", "/torch/amp/", "/torch/fx/",
)  # fmt: skip
"""Parts of paths that occur only in files of torch, wherever it is installed."""


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    """Return the reader of PyTorch runs."""
    return [
        ReaderSpec(
            name="pytorch",
            summary="dump.json and debug.json with .pt files, of mindstudio-probe 1.0, 8.3 and 26",
            framework="pytorch",
            framework_frames=("-packages/torch/", "msprobe", *FRAMEWORK_FILES),
            factory="probe_pytorch.reader:PyTorchReader",
        )
    ]


@hookimpl
def probe_dumpers() -> list[DumperSpec]:
    """Return the recorder of PyTorch programs."""
    from probe_recording.api import DumperSpec

    return [
        DumperSpec(
            name="pytorch",
            summary="PrecisionDebugger for scripts, and probe run for unchanged scripts",
            framework="pytorch",
            levels=("L0", "L1", "mix", "L2", "debug"),
            tasks=("statistics", "tensor", "structure", "overflow_check"),
            factory="probe_pytorch.debugger:PrecisionDebugger",
        )
    ]


@hookimpl
def probe_interceptors() -> list[InterceptorSpec]:
    """Return the interceptor of calls of torch."""
    from probe_recording.api import InterceptorSpec

    return [
        InterceptorSpec(
            name="pytorch",
            summary="passes the calls of torch, named as in a recording, to a task of the debugger",
            framework="pytorch",
            factory="probe_pytorch.capture.interceptor:Interceptor",
        )
    ]


@hookimpl
def probe_condition_captures() -> list[CaptureSpec]:
    """Return the capture of the conditions of PyTorch programs."""
    from probe_recording.api import CaptureSpec

    return [
        CaptureSpec(
            name="pytorch",
            summary="notes the settings of torch, the states of its generators, and hashes of batches",
            framework="pytorch",
            factory="probe_pytorch.capture.conditions:TorchConditions",
        )
    ]


@hookimpl
def probe_recorders() -> list[RecorderSpec]:
    """Return the recorder that other plugins start."""
    from probe_recording.api import RecorderSpec

    return [
        RecorderSpec(
            name="pytorch",
            summary="records the calls and modules of torch while another plugin runs a function",
            framework="pytorch",
            factory="probe_pytorch.recorder:TorchRecorder",
        )
    ]


@hookimpl
def probe_runners() -> list[RunnerSpec]:
    """Return the runner that executes single recorded calls of torch."""
    from probe_precheck.api import RunnerSpec

    return [
        RunnerSpec(
            name="pytorch",
            summary="runs calls of torch on an NPU, a GPU or the CPU, and in a raised dtype on the CPU",
            framework="pytorch",
            factory="probe_pytorch.precheck.runner:PyTorchRunner",
            preload=("torch", "probe_pytorch.precheck.runner"),
        )
    ]


@hookimpl
def probe_references() -> list[ReferenceSpec]:
    """Return the references of the NPU's fused operators, computed in higher precision."""
    from probe_pytorch.precheck.references import load_reference_specs

    return load_reference_specs()


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands ``run`` and ``demo``."""
    return [
        CommandSpec(
            name="run",
            summary="Record an unchanged PyTorch training script.",
            factory="probe_pytorch.run_command:run",
        ),
        CommandSpec(
            name="demo",
            summary="Record two small training runs, one with a fault, and find the fault.",
            factory="probe_pytorch.demo:demo",
        ),
    ]
