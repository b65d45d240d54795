"""What recorders share whatever the framework: configuration, filters, leaves, stacks, the directory.

The names below are what plugins may import; the modules behind them may change.
"""

from probe_recording.arrays import CHECKSUMS, Array, NpyStore, measure
from probe_recording.backward import Backward
from probe_recording.calls import Call, Calls
from probe_recording.config import LEVELS, TASKS, Config, ConfigWarning, parse_steps
from probe_recording.config import load as load_config
from probe_recording.debugger import Debugger
from probe_recording.directory import StepDirectory
from probe_recording.interface import of_the_process
from probe_recording.interrupts import interrupts_deferred
from probe_recording.leaves import NOTHING, Four, Json, Plain, Save, TensorLeaf, Tree, scalar
from probe_recording.loss import spans
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
    "Backward",
    "Call",
    "Calls",
    "Collector",
    "Config",
    "ConfigWarning",
    "Debugger",
    "Entry",
    "Four",
    "Json",
    "NpyStore",
    "Plain",
    "Recorder",
    "Save",
    "Session",
    "Stack",
    "StepDirectory",
    "TensorLeaf",
    "Threads",
    "Tree",
    "Walk",
    "belongs_to_recorder",
    "files_of",
    "frames_of",
    "interrupts_deferred",
    "is_operator",
    "lines_of",
    "load_config",
    "measure",
    "of_the_process",
    "parse_steps",
    "scalar",
    "spans",
    "stack_of",
]
