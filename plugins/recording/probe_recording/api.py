"""The public names of probe-recording, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_recording.arrays import NpyStore, measure
    from probe_recording.backward import Backward
    from probe_recording.call_recorder import CallRecorder
    from probe_recording.capture import Capture, ModuleCapture
    from probe_recording.condition_capture import ConditionCapture
    from probe_recording.config import Config
    from probe_recording.debugger import Debugger
    from probe_recording.fields import Fields
    from probe_recording.interceptors import CallInterceptor, InterceptedCall
    from probe_recording.leaves import TensorLeaf
    from probe_recording.module_hooks import ModuleHooks
    from probe_recording.process import Process
    from probe_recording.reading.leaves import leaf_of
    from probe_recording.reading.npy import load_npy
    from probe_recording.reading.run import DumpRun
    from probe_recording.reading.sniff import confidence
    from probe_recording.recorder import Recorder
    from probe_recording.session import Session
    from probe_recording.sites import belongs_to_recorder, stack_of
    from probe_recording.specs import CaptureSpec, DumperSpec, InterceptorSpec, RecorderSpec, TaskSpec
    from probe_recording.tasks import TaskRecorder
    from probe_recording.values import Collector

__all__ = [
    "Backward",
    "CallInterceptor",
    "CallRecorder",
    "Capture",
    "CaptureSpec",
    "Collector",
    "ConditionCapture",
    "Config",
    "Debugger",
    "DumpRun",
    "DumperSpec",
    "Fields",
    "InterceptedCall",
    "InterceptorSpec",
    "ModuleCapture",
    "ModuleHooks",
    "NpyStore",
    "Process",
    "Recorder",
    "RecorderSpec",
    "Session",
    "TaskRecorder",
    "TaskSpec",
    "TensorLeaf",
    "belongs_to_recorder",
    "confidence",
    "leaf_of",
    "load_npy",
    "measure",
    "stack_of",
]

__getattr__ = create_exporter(
    __name__,
    {
        "arrays": "NpyStore measure",
        "backward": "Backward",
        "call_recorder": "CallRecorder",
        "capture": "Capture ModuleCapture",
        "condition_capture": "ConditionCapture",
        "config": "Config",
        "debugger": "Debugger",
        "fields": "Fields",
        "interceptors": "CallInterceptor InterceptedCall",
        "leaves": "TensorLeaf",
        "module_hooks": "ModuleHooks",
        "process": "Process",
        "reading.leaves": "leaf_of",
        "reading.npy": "load_npy",
        "reading.run": "DumpRun",
        "reading.sniff": "confidence",
        "recorder": "Recorder",
        "session": "Session",
        "sites": "belongs_to_recorder stack_of",
        "specs": "CaptureSpec DumperSpec InterceptorSpec RecorderSpec TaskSpec",
        "tasks": "TaskRecorder",
        "values": "Collector",
    },
)
