"""Hooks of probe-mindspore: its reader, recorder, interceptor, names and runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ReaderSpec

if TYPE_CHECKING:
    from probe_matching.api import NameRule
    from probe_precheck.api import RunnerSpec
    from probe_recording.api import CaptureSpec, DumperSpec, InterceptorSpec


FRAMEWORK_FILES = ("/mindspore/nn/cell.py", "/mindspore/common/", "/mindspore/ops/", "/mindspore/mint/")
"""Parts of paths that occur only in files of MindSpore, wherever it is installed."""


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    """Return the reader of runs recorded from MindSpore."""
    return [
        ReaderSpec(
            name="mindspore",
            summary="dump.json and debug.json with .npy files",
            framework="mindspore",
            framework_frames=("-packages/mindspore/", "msprobe", *FRAMEWORK_FILES),
            factory="probe_mindspore.reader:MindSporeReader",
        )
    ]


@hookimpl
def probe_dumpers() -> list[DumperSpec]:
    """Return the recorder of MindSpore programs."""
    from probe_recording.api import DumperSpec

    return [
        DumperSpec(
            name="mindspore",
            summary="PrecisionDebugger for PyNative programs; jit functions run uncompiled",
            framework="mindspore",
            levels=("L0", "L1", "mix", "debug"),
            tasks=("statistics", "tensor", "structure", "overflow_check"),
            factory="probe_mindspore.debugger:PrecisionDebugger",
        )
    ]


@hookimpl
def probe_interceptors() -> list[InterceptorSpec]:
    """Return the interceptor of calls of MindSpore."""
    from probe_recording.api import InterceptorSpec

    return [
        InterceptorSpec(
            name="mindspore",
            summary="passes the calls of MindSpore, named as in a recording, to a task of the debugger",
            framework="mindspore",
            factory="probe_mindspore.capture.interceptor:Interceptor",
        )
    ]


@hookimpl
def probe_condition_captures() -> list[CaptureSpec]:
    """Return the capture of the conditions of MindSpore programs."""
    from probe_recording.api import CaptureSpec

    return [
        CaptureSpec(
            name="mindspore",
            summary="notes the settings of MindSpore, its seeds, and hashes of batches",
            framework="mindspore",
            factory="probe_mindspore.capture.conditions:MindSporeConditions",
        )
    ]


@hookimpl
def probe_name_rules() -> list[NameRule]:
    """Return the rule that translates names of MindSpore to names of PyTorch."""
    from probe_matching.api import NameRule

    return [
        NameRule(
            name="mindspore-to-pytorch",
            summary="mint, ops, Tensor and nn of MindSpore by PyTorch's names",
            source="mindspore",
            target="pytorch",
            factory="probe_mindspore.names:load_table",
        )
    ]


@hookimpl
def probe_runners() -> list[RunnerSpec]:
    """Return the runner that runs recorded calls of MindSpore one by one."""
    from probe_precheck.api import RunnerSpec

    return [
        RunnerSpec(
            name="mindspore",
            summary="runs calls of mindspore.mint on this device, and of torch in a raised dtype on the CPU",
            framework="mindspore",
            factory="probe_mindspore.precheck.runner:MindSporeRunner",
            preload=("numpy", "torch", "probe_mindspore.precheck.runner"),
        )
    ]
