"""The recording kit: parts shared by the recorders of all frameworks, and the reader of run directories.

Plugins import the names below, and nothing else of this package: its modules may change between releases.
Each name is imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_recording.arrays import CHECKSUMS, Array, NpyStore, measure
    from probe_recording.attribute_patches import AttributePatches
    from probe_recording.backward import Backward
    from probe_recording.batch_values import (
        BLOCK,
        CHUNK_BLOCKS,
        chunk_weight,
        create_batch_entry,
        hash_array,
        hash_weights,
        iterate_batch_tensors,
    )
    from probe_recording.call_recorder import CallRecorder, RunningCall
    from probe_recording.capture import Capture, ModuleCapture
    from probe_recording.condition_capture import ConditionCapture, new_condition_capture
    from probe_recording.conditions import Conditions, Draw, Fact, state_hash
    from probe_recording.config import LEVELS, TASKS, Config, ConfigWarning, load_config, parse_steps
    from probe_recording.debugger import Debugger
    from probe_recording.destination import (
        Destination,
        create_destination,
        is_loopback,
        parse_byte_count,
        replace_destination,
    )
    from probe_recording.diff_check.checks import compare_with_golden
    from probe_recording.diff_check.golden_run import read_golden_run
    from probe_recording.directory import SINGLE, Lock, StepDirectory, remove_earlier_steps
    from probe_recording.earlier_run import settle_earlier_run
    from probe_recording.entry import Entry
    from probe_recording.environment import VARIABLES, read_variables
    from probe_recording.fields import Fields
    from probe_recording.file_names import FAMILIES_FIELD, JOURNAL_FILE, PACKED_FILE, PROBE_FIELD, UNRECORDED_FIELD
    from probe_recording.gathering import GradientCallback, GradientCollector, GradientGatherer, report_gradients
    from probe_recording.interceptors import (
        ActiveSession,
        CallInterceptor,
        GradientReceiver,
        InterceptedCall,
        RandomStates,
        new_interceptor,
    )
    from probe_recording.interface import allow_class_call
    from probe_recording.interrupts import defer_interrupts
    from probe_recording.keeping.band import Band, BandRule, Limit, load_band_rule
    from probe_recording.keeping.event import Cause, Event
    from probe_recording.keeping.keeping_recorder import KeepingRecorder, MemorySession
    from probe_recording.keeping.options import KeepOptions, parse_options
    from probe_recording.keeping.readings import iterate_statistics
    from probe_recording.keeping.settings import keep_config
    from probe_recording.keeping.watch import DEFAULT_PATH, Watch, list_objects, unwrap_single
    from probe_recording.leaves import (
        NOTHING,
        Four,
        Json,
        Plain,
        Save,
        StoredLeaf,
        TensorLeaf,
        Tree,
        quote,
        scalar,
    )
    from probe_recording.loss import format_steps
    from probe_recording.messages import Notices, note
    from probe_recording.module_hooks import ModuleHooks, RunningModule
    from probe_recording.process import Process
    from probe_recording.process_start.late_claim import LateClaim
    from probe_recording.process_start.starter import ProcessStarter
    from probe_recording.reading.leaves import leaf_of
    from probe_recording.reading.memory import SMALL_FILE, Memory, check_unchanged, open_memory
    from probe_recording.reading.npy import load_npy
    from probe_recording.reading.pickle_data import (
        MARK,
        PickledCall,
        PickledName,
        PickleError,
        PickleMachine,
        TruncatedPickle,
    )
    from probe_recording.reading.run import DumpRun, pause_collection
    from probe_recording.reading.sniff import confidence
    from probe_recording.reading.tensors import Tensors, open_tensors
    from probe_recording.recorded_block import HookSteps, RecordedBlock, create_block_config, report_recording
    from probe_recording.recorded_settings import RecordedSettings, read_settings
    from probe_recording.recorder import Recorder
    from probe_recording.recorder_creation import new_recorder
    from probe_recording.recorder_state import Change, RecorderState
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
        encode_call_head,
        encode_frame,
        get_counts,
        get_number,
        get_numbers,
        get_session,
        get_text,
        parse_call,
        parse_call_head,
        parse_frame,
        parse_frame_file,
        parse_prefix,
    )
    from probe_recording.sending.sender import Sender
    from probe_recording.sending.session import SendingMixin
    from probe_recording.sending.shared import SharedName, parse_shared_name
    from probe_recording.sending.tls import (
        create_receiver_context,
        create_sender_context,
        format_connection_error,
        is_mutual,
    )
    from probe_recording.session import Session, Store
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
    from probe_recording.specs import CaptureSpec, DumperSpec, InterceptorSpec, RecorderSpec, TaskSpec
    from probe_recording.step_follower import StepFollower
    from probe_recording.step_phases import NO_BACKWARD, NO_STEP, StepPhase, StepPhases, flatten_leaves
    from probe_recording.tasks import TaskRecorder
    from probe_recording.threads import Threads
    from probe_recording.values import SCALARS, Collector, Walk

__all__ = [
    "BLOCK",
    "CHECKSUMS",
    "CHUNK_BLOCKS",
    "DEFAULT_PATH",
    "FAMILIES_FIELD",
    "JOURNAL_FILE",
    "LEVELS",
    "MARK",
    "NOTHING",
    "NO_BACKWARD",
    "NO_STEP",
    "PACKED_FILE",
    "PREFIX",
    "PROBE_FIELD",
    "PROTOCOL",
    "SCALARS",
    "SINGLE",
    "SMALL_FILE",
    "STAND_IN",
    "TASKS",
    "UNRECORDED_FIELD",
    "VARIABLES",
    "ActiveSession",
    "Array",
    "AttributePatches",
    "Backward",
    "Band",
    "BandRule",
    "CallInterceptor",
    "CallRecorder",
    "Capture",
    "CaptureSpec",
    "Cause",
    "Change",
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
    "DumperSpec",
    "Entry",
    "Event",
    "Fact",
    "Fields",
    "Four",
    "Frame",
    "FrameError",
    "FrameKind",
    "FrameLimits",
    "GradientCallback",
    "GradientCollector",
    "GradientGatherer",
    "GradientReceiver",
    "HookSteps",
    "InterceptedCall",
    "InterceptorSpec",
    "Json",
    "KeepOptions",
    "KeepingRecorder",
    "LateClaim",
    "Limit",
    "Lock",
    "Memory",
    "MemorySession",
    "ModuleCapture",
    "ModuleHooks",
    "Notices",
    "NpyStore",
    "PickleError",
    "PickleMachine",
    "PickledCall",
    "PickledName",
    "Plain",
    "Prefix",
    "Process",
    "ProcessStarter",
    "RandomStates",
    "RecordedBlock",
    "RecordedSettings",
    "Recorder",
    "RecorderSpec",
    "RecorderState",
    "RunningCall",
    "RunningModule",
    "Save",
    "Sender",
    "SendingMixin",
    "SentCall",
    "SentTensor",
    "SentTensors",
    "Session",
    "SharedName",
    "Stack",
    "StepDirectory",
    "StepFollower",
    "StepPhase",
    "StepPhases",
    "Store",
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
    "allow_class_call",
    "belongs_to_recorder",
    "check_unchanged",
    "chunk_weight",
    "compare_with_golden",
    "confidence",
    "create_batch_entry",
    "create_block_config",
    "create_destination",
    "create_receiver_context",
    "create_sender_context",
    "defer_interrupts",
    "encode_body",
    "encode_call_head",
    "encode_frame",
    "files_of",
    "flatten_leaves",
    "format_connection_error",
    "format_steps",
    "frames_of",
    "get_counts",
    "get_number",
    "get_numbers",
    "get_session",
    "get_text",
    "hash_array",
    "hash_weights",
    "is_loopback",
    "is_mutual",
    "is_operator",
    "iterate_batch_tensors",
    "iterate_statistics",
    "keep_config",
    "leaf_of",
    "lines_of",
    "list_objects",
    "load_band_rule",
    "load_config",
    "load_npy",
    "measure",
    "new_condition_capture",
    "new_interceptor",
    "new_recorder",
    "note",
    "open_memory",
    "open_tensors",
    "parse_byte_count",
    "parse_call",
    "parse_call_head",
    "parse_frame",
    "parse_frame_file",
    "parse_options",
    "parse_prefix",
    "parse_shared_name",
    "parse_steps",
    "pause_collection",
    "quote",
    "read_golden_run",
    "read_settings",
    "read_variables",
    "remove_earlier_steps",
    "replace_destination",
    "report_gradients",
    "report_recording",
    "scalar",
    "settle_earlier_run",
    "stack_of",
    "state_hash",
    "unwrap_single",
    "use_stack_finder",
]

__getattr__ = create_exporter(
    __name__,
    {
        "arrays": "CHECKSUMS Array NpyStore measure",
        "attribute_patches": "AttributePatches",
        "backward": "Backward",
        "batch_values": "BLOCK CHUNK_BLOCKS chunk_weight create_batch_entry hash_array hash_weights "
        "iterate_batch_tensors",
        "call_recorder": "CallRecorder RunningCall",
        "capture": "Capture ModuleCapture",
        "condition_capture": "ConditionCapture new_condition_capture",
        "conditions": "Conditions Draw Fact state_hash",
        "config": "LEVELS TASKS Config ConfigWarning load_config parse_steps",
        "debugger": "Debugger",
        "diff_check.checks": "compare_with_golden",
        "diff_check.golden_run": "read_golden_run",
        "directory": "SINGLE Lock StepDirectory remove_earlier_steps",
        "earlier_run": "settle_earlier_run",
        "fields": "Fields",
        "file_names": "FAMILIES_FIELD JOURNAL_FILE PACKED_FILE PROBE_FIELD UNRECORDED_FIELD",
        "gathering": "GradientCallback GradientGatherer GradientCollector report_gradients",
        "interceptors": "ActiveSession CallInterceptor GradientReceiver InterceptedCall RandomStates new_interceptor",
        "interface": "allow_class_call",
        "interrupts": "defer_interrupts",
        "keeping.band": "Band BandRule Limit load_band_rule",
        "keeping.event": "Cause Event",
        "keeping.keeping_recorder": "KeepingRecorder MemorySession",
        "keeping.options": "KeepOptions parse_options",
        "keeping.readings": "iterate_statistics",
        "keeping.settings": "keep_config",
        "keeping.watch": "DEFAULT_PATH Watch list_objects unwrap_single",
        "step_follower": "StepFollower",
        "step_phases": "NO_BACKWARD NO_STEP StepPhases StepPhase flatten_leaves",
        "leaves": "NOTHING Four Json Plain Save StoredLeaf TensorLeaf Tree quote scalar",
        "loss": "format_steps",
        "messages": "Notices note",
        "module_hooks": "ModuleHooks RunningModule",
        "destination": "Destination parse_byte_count create_destination is_loopback replace_destination",
        "process": "Process",
        "process_start.late_claim": "LateClaim",
        "process_start.starter": "ProcessStarter",
        "reading.leaves": "leaf_of",
        "reading.memory": "SMALL_FILE Memory check_unchanged open_memory",
        "reading.npy": "load_npy",
        "reading.pickle_data": "MARK PickleError PickleMachine PickledCall PickledName TruncatedPickle",
        "reading.run": "DumpRun pause_collection",
        "reading.sniff": "confidence",
        "reading.tensors": "Tensors open_tensors",
        "recorded_settings": "RecordedSettings read_settings",
        "recorded_block": "HookSteps RecordedBlock create_block_config report_recording",
        "recorder": "Recorder",
        "recorder_state": "Change RecorderState",
        "sending.body": "SentTensor SentTensors encode_body",
        "sending.message": "DamagedFrame Frame FrameError FrameKind FrameLimits PREFIX PROTOCOL Prefix SentCall "
        "encode_call_head encode_frame get_counts get_number get_numbers get_session get_text parse_call "
        "parse_call_head parse_frame parse_frame_file parse_prefix",
        "sending.sender": "Sender",
        "sending.session": "SendingMixin",
        "sending.shared": "SharedName parse_shared_name",
        "sending.tls": "is_mutual create_receiver_context create_sender_context format_connection_error",
        "entry": "Entry",
        "session": "Session Store",
        "sites": "STAND_IN Stack belongs_to_recorder files_of frames_of is_operator lines_of stack_of use_stack_finder",
        "recorder_creation": "new_recorder",
        "specs": "CaptureSpec DumperSpec InterceptorSpec RecorderSpec TaskSpec",
        "environment": "VARIABLES read_variables",
        "tasks": "TaskRecorder",
        "threads": "Threads",
        "values": "SCALARS Collector Walk",
    },
    renamed={
        "Ladder": "StepPhases",
        "Rung": "StepPhase",
        "Call": "RunningCall",
        "Calls": "CallRecorder",
        "Arrived": "GradientCallback",
        "Gathering": "GradientGatherer",
        "KeptSession": "MemorySession",
        "Running": "RunningModule",
        "Sending": "SendingMixin",
        "batch_entry": "create_batch_entry",
        "batch_tensors": "iterate_batch_tensors",
        "bytes_of": "parse_byte_count",
        "call_head": "encode_call_head",
        "call_in": "parse_call_head",
        "call_of": "parse_call",
        "collection_paused": "pause_collection",
        "counts_in": "get_counts",
        "destination_to": "create_destination",
        "flat": "flatten_leaves",
        "frame_in": "parse_frame_file",
        "frame_of": "parse_frame",
        "interrupts_deferred": "defer_interrupts",
        "memory_of": "open_memory",
        "number_in": "get_number",
        "numbers_in": "get_numbers",
        "objects_of": "list_objects",
        "of_the_process": "allow_class_call",
        "prefix_of": "parse_prefix",
        "receiver_context": "create_receiver_context",
        "recorded_variables": "read_variables",
        "sender_context": "create_sender_context",
        "sentence_of": "format_connection_error",
        "session_in": "get_session",
        "shared_name": "parse_shared_name",
        "single_or_all": "unwrap_single",
        "quoted": "quote",
        "spans": "format_steps",
        "tell_each": "report_gradients",
        "tensors_in": "open_tensors",
        "text_in": "get_text",
        "with_destination": "replace_destination",
    },
)
