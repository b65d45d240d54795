"""The public names of probe-recording, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_recording.capture.backward import Backward
    from probe_recording.capture.call_recorder import CallRecorder
    from probe_recording.capture.captures import Capture, ModuleCapture
    from probe_recording.capture.condition_capture import ConditionCapture
    from probe_recording.capture.interceptors import CallInterceptor, InterceptedCall
    from probe_recording.capture.module_hooks import ModuleHooks
    from probe_recording.debugger import Debugger
    from probe_recording.fields import Fields
    from probe_recording.reading.leaves import leaf_of
    from probe_recording.reading.npy import load_npy
    from probe_recording.reading.run import DumpRun
    from probe_recording.reading.sniff import confidence
    from probe_recording.recorder.recorder import Recorder
    from probe_recording.recorder.tasks import TaskRecorder
    from probe_recording.run_directory.process import Process
    from probe_recording.sessions.session import Session
    from probe_recording.settings.config import Config
    from probe_recording.sites import belongs_to_recorder, stack_of
    from probe_recording.specs import CaptureSpec, DumperSpec, InterceptorSpec, RecorderSpec, TaskSpec
    from probe_recording.values.arrays import NpyStore, measure
    from probe_recording.values.collector import Collector
    from probe_recording.values.leaves import TensorLeaf

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
        "values.arrays": "NpyStore measure",
        "capture.backward": "Backward",
        "capture.call_recorder": "CallRecorder",
        "capture.captures": "Capture ModuleCapture",
        "capture.condition_capture": "ConditionCapture",
        "settings.config": "Config",
        "debugger": "Debugger",
        "fields": "Fields",
        "capture.interceptors": "CallInterceptor InterceptedCall",
        "values.leaves": "TensorLeaf",
        "capture.module_hooks": "ModuleHooks",
        "run_directory.process": "Process",
        "reading.leaves": "leaf_of",
        "reading.npy": "load_npy",
        "reading.run": "DumpRun",
        "reading.sniff": "confidence",
        "recorder.recorder": "Recorder",
        "sessions.session": "Session",
        "sites": "belongs_to_recorder stack_of",
        "specs": "CaptureSpec DumperSpec InterceptorSpec RecorderSpec TaskSpec",
        "recorder.tasks": "TaskRecorder",
        "values.collector": "Collector",
    },
)
