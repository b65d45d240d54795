"""The recording kit: parts shared by the recorders of all frameworks, and the reader of run directories.

Plugins import the names below, and nothing else of this package: its modules may change between releases.
Each name is imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import exporter

if TYPE_CHECKING:
    from probe_recording.arrays import CHECKSUMS, Array, NpyStore, measure
    from probe_recording.backward import Backward
    from probe_recording.calls import Call, Calls
    from probe_recording.config import LEVELS, TASKS, Config, ConfigWarning, load_config, parse_steps
    from probe_recording.debugger import Debugger
    from probe_recording.directory import StepDirectory
    from probe_recording.gathering import Arrived, Gathering
    from probe_recording.interface import of_the_process
    from probe_recording.interrupts import interrupts_deferred
    from probe_recording.ladder import Ladder, Rung, flat
    from probe_recording.leaves import NOTHING, Four, Json, Plain, Save, TensorLeaf, Tree, scalar
    from probe_recording.loss import spans
    from probe_recording.module_hooks import ModuleHooks, Running
    from probe_recording.reading.leaves import leaf_of
    from probe_recording.reading.memory import Memory, check_unchanged, memory_of
    from probe_recording.reading.npy import load_npy
    from probe_recording.reading.run import DumpRun, collection_paused
    from probe_recording.reading.sniff import confidence
    from probe_recording.reading.tensors import Tensors, tensors_in
    from probe_recording.recorder import SINGLE, Recorder
    from probe_recording.session import Entry, Session
    from probe_recording.sites import (
        STAND_IN,
        Stack,
        belongs_to_recorder,
        files_of,
        frames_of,
        is_operator,
        lines_of,
        stack_of,
    )
    from probe_recording.threads import Threads
    from probe_recording.values import SCALARS, Collector, Walk

__all__ = [
    "CHECKSUMS",
    "LEVELS",
    "NOTHING",
    "SCALARS",
    "SINGLE",
    "STAND_IN",
    "TASKS",
    "Array",
    "Arrived",
    "Backward",
    "Call",
    "Calls",
    "Collector",
    "Config",
    "ConfigWarning",
    "Debugger",
    "DumpRun",
    "Entry",
    "Four",
    "Gathering",
    "Json",
    "Ladder",
    "Memory",
    "ModuleHooks",
    "NpyStore",
    "Plain",
    "Recorder",
    "Rung",
    "Running",
    "Save",
    "Session",
    "Stack",
    "StepDirectory",
    "TensorLeaf",
    "Tensors",
    "Threads",
    "Tree",
    "Walk",
    "belongs_to_recorder",
    "check_unchanged",
    "collection_paused",
    "confidence",
    "files_of",
    "flat",
    "frames_of",
    "interrupts_deferred",
    "is_operator",
    "leaf_of",
    "lines_of",
    "load_config",
    "load_npy",
    "measure",
    "memory_of",
    "of_the_process",
    "parse_steps",
    "scalar",
    "spans",
    "stack_of",
    "tensors_in",
]

__getattr__ = exporter(
    __name__,
    {
        "arrays": "CHECKSUMS Array NpyStore measure",
        "backward": "Backward",
        "calls": "Call Calls",
        "config": "LEVELS TASKS Config ConfigWarning load_config parse_steps",
        "debugger": "Debugger",
        "directory": "StepDirectory",
        "gathering": "Arrived Gathering",
        "interface": "of_the_process",
        "interrupts": "interrupts_deferred",
        "ladder": "Ladder Rung flat",
        "leaves": "NOTHING Four Json Plain Save TensorLeaf Tree scalar",
        "loss": "spans",
        "module_hooks": "ModuleHooks Running",
        "reading.leaves": "leaf_of",
        "reading.memory": "Memory check_unchanged memory_of",
        "reading.npy": "load_npy",
        "reading.run": "DumpRun collection_paused",
        "reading.sniff": "confidence",
        "reading.tensors": "Tensors tensors_in",
        "recorder": "SINGLE Recorder",
        "session": "Entry Session",
        "sites": "STAND_IN Stack belongs_to_recorder files_of frames_of is_operator lines_of stack_of",
        "threads": "Threads",
        "values": "SCALARS Collector Walk",
    },
)
