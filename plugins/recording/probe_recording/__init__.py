"""The recording kit: parts shared by the recorders of all frameworks, and the reader of run directories.

Plugins import the names below, and nothing else of this package: its modules may change between releases.
Each name is imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_recording.arrays import CHECKSUMS, Array, NpyStore, measure
    from probe_recording.backward import Backward
    from probe_recording.batch_values import (
        BLOCK,
        CHUNK_BLOCKS,
        batch_entry,
        batch_tensors,
        chunk_weight,
        hash_array,
        hash_weights,
    )
    from probe_recording.calls import Call, Calls
    from probe_recording.condition_capture import ConditionCapture, new_condition_capture
    from probe_recording.conditions import Conditions, Draw, Fact, state_hash
    from probe_recording.config import LEVELS, TASKS, Config, ConfigWarning, load_config, parse_steps
    from probe_recording.debugger import Debugger
    from probe_recording.directory import SINGLE, Lock, StepDirectory, remove_earlier_steps
    from probe_recording.earlier_run import settle_earlier_run
    from probe_recording.fields import Fields
    from probe_recording.gathering import Arrived, Gathering, GradientCollector, tell_each
    from probe_recording.interceptors import (
        CallInterceptor,
        GradientReceiver,
        InterceptedCall,
        RandomStates,
        new_interceptor,
    )
    from probe_recording.interface import of_the_process
    from probe_recording.interrupts import interrupts_deferred
    from probe_recording.keeping.band import Band, BandRule, Limit, load_band_rule
    from probe_recording.keeping.event import Cause, Event
    from probe_recording.keeping.keeping_recorder import KeepingRecorder, KeptSession
    from probe_recording.keeping.options import KeepOptions, parse_options
    from probe_recording.keeping.readings import iterate_statistics
    from probe_recording.keeping.settings import keep_config
    from probe_recording.keeping.watch import DEFAULT_PATH, Watch, objects_of, single_or_all
    from probe_recording.ladder import Ladder, Rung, flat
    from probe_recording.leaves import (
        NOTHING,
        Four,
        Json,
        Plain,
        Save,
        StoredLeaf,
        TensorLeaf,
        Tree,
        quoted,
        scalar,
    )
    from probe_recording.loss import spans
    from probe_recording.messages import note
    from probe_recording.module_hooks import ModuleHooks, Running
    from probe_recording.place import Destination, bytes_of, destination_to, is_loopback, with_destination
    from probe_recording.process import Process
    from probe_recording.reading.leaves import leaf_of
    from probe_recording.reading.memory import SMALL_FILE, Memory, check_unchanged, memory_of
    from probe_recording.reading.npy import load_npy
    from probe_recording.reading.pickle_data import (
        MARK,
        PickledCall,
        PickledName,
        PickleError,
        PickleMachine,
        TruncatedPickle,
    )
    from probe_recording.reading.run import DumpRun, collection_paused
    from probe_recording.reading.sniff import confidence
    from probe_recording.reading.tensors import Tensors, tensors_in
    from probe_recording.recorder import Recorder
    from probe_recording.recorder_creation import new_recorder
    from probe_recording.sending.body import SentTensor, SentTensors, encode_body
    from probe_recording.sending.message import (
        PREFIX,
        PROTOCOL,
        DamagedFrame,
        Frame,
        FrameError,
        FrameKind,
        FrameLimits,
        Prefix,
        SentCall,
        call_head,
        call_in,
        call_of,
        counts_in,
        encode_frame,
        frame_in,
        frame_of,
        number_in,
        numbers_in,
        prefix_of,
        session_in,
        text_in,
    )
    from probe_recording.sending.sender import Sender
    from probe_recording.sending.session import Sending
    from probe_recording.sending.shared import SharedName, shared_name
    from probe_recording.sending.tls import is_mutual, receiver_context, sender_context, sentence_of
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
        use_stack_finder,
    )
    from probe_recording.specs import CaptureSpec, InterceptorSpec, RecorderSpec, TaskSpec
    from probe_recording.surroundings import VARIABLES, recorded_variables
    from probe_recording.tasks import TaskRecorder
    from probe_recording.threads import Threads
    from probe_recording.values import SCALARS, Collector, Walk

__all__ = [
    "BLOCK",
    "CHECKSUMS",
    "CHUNK_BLOCKS",
    "DEFAULT_PATH",
    "LEVELS",
    "MARK",
    "NOTHING",
    "PREFIX",
    "PROTOCOL",
    "SCALARS",
    "SINGLE",
    "SMALL_FILE",
    "STAND_IN",
    "TASKS",
    "VARIABLES",
    "Array",
    "Arrived",
    "Backward",
    "Band",
    "BandRule",
    "Call",
    "CallInterceptor",
    "Calls",
    "CaptureSpec",
    "Cause",
    "Collector",
    "ConditionCapture",
    "Conditions",
    "Config",
    "ConfigWarning",
    "DamagedFrame",
    "Debugger",
    "Destination",
    "Draw",
    "DumpRun",
    "Entry",
    "Event",
    "Fact",
    "Fields",
    "Four",
    "Frame",
    "FrameError",
    "FrameKind",
    "FrameLimits",
    "Gathering",
    "GradientCollector",
    "GradientReceiver",
    "InterceptedCall",
    "InterceptorSpec",
    "Json",
    "KeepOptions",
    "KeepingRecorder",
    "KeptSession",
    "Ladder",
    "Limit",
    "Lock",
    "Memory",
    "ModuleHooks",
    "NpyStore",
    "PickleError",
    "PickleMachine",
    "PickledCall",
    "PickledName",
    "Plain",
    "Prefix",
    "Process",
    "RandomStates",
    "Recorder",
    "RecorderSpec",
    "Rung",
    "Running",
    "Save",
    "Sender",
    "Sending",
    "SentCall",
    "SentTensor",
    "SentTensors",
    "Session",
    "SharedName",
    "Stack",
    "StepDirectory",
    "StoredLeaf",
    "TaskRecorder",
    "TaskSpec",
    "TensorLeaf",
    "Tensors",
    "Threads",
    "Tree",
    "TruncatedPickle",
    "Walk",
    "Watch",
    "batch_entry",
    "batch_tensors",
    "belongs_to_recorder",
    "bytes_of",
    "call_head",
    "call_in",
    "call_of",
    "check_unchanged",
    "chunk_weight",
    "collection_paused",
    "confidence",
    "counts_in",
    "destination_to",
    "encode_body",
    "encode_frame",
    "files_of",
    "flat",
    "frame_in",
    "frame_of",
    "frames_of",
    "hash_array",
    "hash_weights",
    "interrupts_deferred",
    "is_loopback",
    "is_mutual",
    "is_operator",
    "iterate_statistics",
    "keep_config",
    "leaf_of",
    "lines_of",
    "load_band_rule",
    "load_config",
    "load_npy",
    "measure",
    "memory_of",
    "new_condition_capture",
    "new_interceptor",
    "new_recorder",
    "note",
    "number_in",
    "numbers_in",
    "objects_of",
    "of_the_process",
    "parse_options",
    "parse_steps",
    "prefix_of",
    "quoted",
    "receiver_context",
    "recorded_variables",
    "remove_earlier_steps",
    "scalar",
    "sender_context",
    "sentence_of",
    "session_in",
    "settle_earlier_run",
    "shared_name",
    "single_or_all",
    "spans",
    "stack_of",
    "state_hash",
    "tell_each",
    "tensors_in",
    "text_in",
    "use_stack_finder",
    "with_destination",
]

__getattr__ = create_exporter(
    __name__,
    {
        "arrays": "CHECKSUMS Array NpyStore measure",
        "backward": "Backward",
        "batch_values": "BLOCK CHUNK_BLOCKS batch_entry batch_tensors chunk_weight hash_array hash_weights",
        "calls": "Call Calls",
        "condition_capture": "ConditionCapture new_condition_capture",
        "conditions": "Conditions Draw Fact state_hash",
        "config": "LEVELS TASKS Config ConfigWarning load_config parse_steps",
        "debugger": "Debugger",
        "directory": "SINGLE Lock StepDirectory remove_earlier_steps",
        "earlier_run": "settle_earlier_run",
        "fields": "Fields",
        "gathering": "Arrived Gathering GradientCollector tell_each",
        "interceptors": "CallInterceptor GradientReceiver InterceptedCall RandomStates new_interceptor",
        "interface": "of_the_process",
        "interrupts": "interrupts_deferred",
        "keeping.band": "Band BandRule Limit load_band_rule",
        "keeping.event": "Cause Event",
        "keeping.keeping_recorder": "KeepingRecorder KeptSession",
        "keeping.options": "KeepOptions parse_options",
        "keeping.readings": "iterate_statistics",
        "keeping.settings": "keep_config",
        "keeping.watch": "DEFAULT_PATH Watch objects_of single_or_all",
        "ladder": "Ladder Rung flat",
        "leaves": "NOTHING Four Json Plain Save StoredLeaf TensorLeaf Tree quoted scalar",
        "loss": "spans",
        "messages": "note",
        "module_hooks": "ModuleHooks Running",
        "place": "Destination bytes_of destination_to is_loopback with_destination",
        "process": "Process",
        "reading.leaves": "leaf_of",
        "reading.memory": "SMALL_FILE Memory check_unchanged memory_of",
        "reading.npy": "load_npy",
        "reading.pickle_data": "MARK PickleError PickleMachine PickledCall PickledName TruncatedPickle",
        "reading.run": "DumpRun collection_paused",
        "reading.sniff": "confidence",
        "reading.tensors": "Tensors tensors_in",
        "recorder": "Recorder",
        "sending.body": "SentTensor SentTensors encode_body",
        "sending.message": "PREFIX PROTOCOL DamagedFrame Frame FrameError FrameKind FrameLimits Prefix "
        "SentCall call_head call_in call_of counts_in encode_frame frame_in frame_of number_in numbers_in "
        "prefix_of session_in text_in",
        "sending.sender": "Sender",
        "sending.session": "Sending",
        "sending.shared": "SharedName shared_name",
        "sending.tls": "is_mutual receiver_context sender_context sentence_of",
        "session": "Entry Session",
        "sites": "STAND_IN Stack belongs_to_recorder files_of frames_of is_operator lines_of stack_of use_stack_finder",
        "recorder_creation": "new_recorder",
        "specs": "CaptureSpec InterceptorSpec RecorderSpec TaskSpec",
        "surroundings": "VARIABLES recorded_variables",
        "tasks": "TaskRecorder",
        "threads": "Threads",
        "values": "SCALARS Collector Walk",
    },
)
