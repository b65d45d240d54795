"""The recording kit: parts shared by the recorders of all frameworks, and the reader of run directories.

Plugins import the names below, and nothing else of this package: its modules may change between releases.
Each name is imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_recording.arrays import CHECKSUMS as CHECKSUMS
    from probe_recording.arrays import Array as Array
    from probe_recording.arrays import NpyStore as NpyStore
    from probe_recording.arrays import measure as measure
    from probe_recording.attribute_patches import AttributePatches as AttributePatches
    from probe_recording.backward import Backward as Backward
    from probe_recording.batch_values import BLOCK as BLOCK
    from probe_recording.batch_values import CHUNK_BLOCKS as CHUNK_BLOCKS
    from probe_recording.batch_values import chunk_weight as chunk_weight
    from probe_recording.batch_values import create_batch_entry as create_batch_entry
    from probe_recording.batch_values import hash_array as hash_array
    from probe_recording.batch_values import hash_weights as hash_weights
    from probe_recording.batch_values import iterate_batch_tensors as iterate_batch_tensors
    from probe_recording.call_recorder import CallRecorder as CallRecorder
    from probe_recording.call_recorder import RunningCall as RunningCall
    from probe_recording.capture import Capture as Capture
    from probe_recording.capture import ModuleCapture as ModuleCapture
    from probe_recording.condition_capture import ConditionCapture as ConditionCapture
    from probe_recording.condition_capture import new_condition_capture as new_condition_capture
    from probe_recording.conditions import Conditions as Conditions
    from probe_recording.conditions import Draw as Draw
    from probe_recording.conditions import Fact as Fact
    from probe_recording.conditions import state_hash as state_hash
    from probe_recording.config import LEVELS as LEVELS
    from probe_recording.config import TASKS as TASKS
    from probe_recording.config import Config as Config
    from probe_recording.config import ConfigWarning as ConfigWarning
    from probe_recording.config import load_config as load_config
    from probe_recording.config import parse_steps as parse_steps
    from probe_recording.debugger import Debugger as Debugger
    from probe_recording.destination import Destination as Destination
    from probe_recording.destination import create_destination as create_destination
    from probe_recording.destination import is_loopback as is_loopback
    from probe_recording.destination import parse_byte_count as parse_byte_count
    from probe_recording.destination import replace_destination as replace_destination
    from probe_recording.diff_check.checks import compare_with_golden as compare_with_golden
    from probe_recording.diff_check.golden_run import read_golden_run as read_golden_run
    from probe_recording.directory import SINGLE as SINGLE
    from probe_recording.directory import Lock as Lock
    from probe_recording.directory import StepDirectory as StepDirectory
    from probe_recording.directory import remove_earlier_steps as remove_earlier_steps
    from probe_recording.earlier_run import settle_earlier_run as settle_earlier_run
    from probe_recording.entry import Entry as Entry
    from probe_recording.environment import VARIABLES as VARIABLES
    from probe_recording.environment import read_variables as read_variables
    from probe_recording.fields import Fields as Fields
    from probe_recording.gathering import GradientCallback as GradientCallback
    from probe_recording.gathering import GradientCollector as GradientCollector
    from probe_recording.gathering import GradientGatherer as GradientGatherer
    from probe_recording.gathering import report_gradients as report_gradients
    from probe_recording.interceptors import ActiveSession as ActiveSession
    from probe_recording.interceptors import CallInterceptor as CallInterceptor
    from probe_recording.interceptors import GradientReceiver as GradientReceiver
    from probe_recording.interceptors import InterceptedCall as InterceptedCall
    from probe_recording.interceptors import RandomStates as RandomStates
    from probe_recording.interceptors import new_interceptor as new_interceptor
    from probe_recording.interface import allow_class_call as allow_class_call
    from probe_recording.interrupts import defer_interrupts as defer_interrupts
    from probe_recording.keeping.band import Band as Band
    from probe_recording.keeping.band import BandRule as BandRule
    from probe_recording.keeping.band import Limit as Limit
    from probe_recording.keeping.band import load_band_rule as load_band_rule
    from probe_recording.keeping.event import Cause as Cause
    from probe_recording.keeping.event import Event as Event
    from probe_recording.keeping.keeping_recorder import KeepingRecorder as KeepingRecorder
    from probe_recording.keeping.keeping_recorder import MemorySession as MemorySession
    from probe_recording.keeping.options import KeepOptions as KeepOptions
    from probe_recording.keeping.options import parse_options as parse_options
    from probe_recording.keeping.readings import iterate_statistics as iterate_statistics
    from probe_recording.keeping.settings import keep_config as keep_config
    from probe_recording.keeping.watch import DEFAULT_PATH as DEFAULT_PATH
    from probe_recording.keeping.watch import Watch as Watch
    from probe_recording.keeping.watch import list_objects as list_objects
    from probe_recording.keeping.watch import unwrap_single as unwrap_single
    from probe_recording.leaves import NOTHING as NOTHING
    from probe_recording.leaves import Four as Four
    from probe_recording.leaves import Json as Json
    from probe_recording.leaves import Plain as Plain
    from probe_recording.leaves import Save as Save
    from probe_recording.leaves import StoredLeaf as StoredLeaf
    from probe_recording.leaves import TensorLeaf as TensorLeaf
    from probe_recording.leaves import Tree as Tree
    from probe_recording.leaves import quote as quote
    from probe_recording.leaves import scalar as scalar
    from probe_recording.loss import format_steps as format_steps
    from probe_recording.messages import Notices as Notices
    from probe_recording.messages import note as note
    from probe_recording.module_hooks import ModuleHooks as ModuleHooks
    from probe_recording.module_hooks import RunningModule as RunningModule
    from probe_recording.process import Process as Process
    from probe_recording.process_start.late_claim import LateClaim as LateClaim
    from probe_recording.process_start.starter import ProcessStarter as ProcessStarter
    from probe_recording.reading.leaves import leaf_of as leaf_of
    from probe_recording.reading.memory import SMALL_FILE as SMALL_FILE
    from probe_recording.reading.memory import Memory as Memory
    from probe_recording.reading.memory import check_unchanged as check_unchanged
    from probe_recording.reading.memory import open_memory as open_memory
    from probe_recording.reading.npy import load_npy as load_npy
    from probe_recording.reading.pickle_data import MARK as MARK
    from probe_recording.reading.pickle_data import PickledCall as PickledCall
    from probe_recording.reading.pickle_data import PickledName as PickledName
    from probe_recording.reading.pickle_data import PickleError as PickleError
    from probe_recording.reading.pickle_data import PickleMachine as PickleMachine
    from probe_recording.reading.pickle_data import TruncatedPickle as TruncatedPickle
    from probe_recording.reading.run import DumpRun as DumpRun
    from probe_recording.reading.run import pause_collection as pause_collection
    from probe_recording.reading.sniff import confidence as confidence
    from probe_recording.reading.tensors import Tensors as Tensors
    from probe_recording.reading.tensors import open_tensors as open_tensors
    from probe_recording.recorded_block import HookSteps as HookSteps
    from probe_recording.recorded_block import RecordedBlock as RecordedBlock
    from probe_recording.recorded_block import create_block_config as create_block_config
    from probe_recording.recorded_block import report_recording as report_recording
    from probe_recording.recorded_settings import RecordedSettings as RecordedSettings
    from probe_recording.recorded_settings import read_settings as read_settings
    from probe_recording.recorder import Recorder as Recorder
    from probe_recording.recorder_creation import new_recorder as new_recorder
    from probe_recording.recorder_state import Change as Change
    from probe_recording.recorder_state import RecorderState as RecorderState
    from probe_recording.sending.body import SentTensor as SentTensor
    from probe_recording.sending.body import SentTensors as SentTensors
    from probe_recording.sending.body import encode_body as encode_body
    from probe_recording.sending.message import PREFIX as PREFIX
    from probe_recording.sending.message import PROTOCOL as PROTOCOL
    from probe_recording.sending.message import DamagedFrame as DamagedFrame
    from probe_recording.sending.message import Frame as Frame
    from probe_recording.sending.message import FrameError as FrameError
    from probe_recording.sending.message import FrameKind as FrameKind
    from probe_recording.sending.message import FrameLimits as FrameLimits
    from probe_recording.sending.message import Prefix as Prefix
    from probe_recording.sending.message import SentCall as SentCall
    from probe_recording.sending.message import encode_call_head as encode_call_head
    from probe_recording.sending.message import encode_frame as encode_frame
    from probe_recording.sending.message import get_counts as get_counts
    from probe_recording.sending.message import get_number as get_number
    from probe_recording.sending.message import get_numbers as get_numbers
    from probe_recording.sending.message import get_session as get_session
    from probe_recording.sending.message import get_text as get_text
    from probe_recording.sending.message import parse_call as parse_call
    from probe_recording.sending.message import parse_call_head as parse_call_head
    from probe_recording.sending.message import parse_frame as parse_frame
    from probe_recording.sending.message import parse_frame_file as parse_frame_file
    from probe_recording.sending.message import parse_prefix as parse_prefix
    from probe_recording.sending.sender import Sender as Sender
    from probe_recording.sending.session import SendingMixin as SendingMixin
    from probe_recording.sending.shared import SharedName as SharedName
    from probe_recording.sending.shared import parse_shared_name as parse_shared_name
    from probe_recording.sending.tls import create_receiver_context as create_receiver_context
    from probe_recording.sending.tls import create_sender_context as create_sender_context
    from probe_recording.sending.tls import format_connection_error as format_connection_error
    from probe_recording.sending.tls import is_mutual as is_mutual
    from probe_recording.session import Session as Session
    from probe_recording.session import Store as Store
    from probe_recording.sites import STAND_IN as STAND_IN
    from probe_recording.sites import Stack as Stack
    from probe_recording.sites import belongs_to_recorder as belongs_to_recorder
    from probe_recording.sites import files_of as files_of
    from probe_recording.sites import frames_of as frames_of
    from probe_recording.sites import is_operator as is_operator
    from probe_recording.sites import lines_of as lines_of
    from probe_recording.sites import stack_of as stack_of
    from probe_recording.sites import use_stack_finder as use_stack_finder
    from probe_recording.specs import CaptureSpec as CaptureSpec
    from probe_recording.specs import InterceptorSpec as InterceptorSpec
    from probe_recording.specs import RecorderSpec as RecorderSpec
    from probe_recording.specs import TaskSpec as TaskSpec
    from probe_recording.step_follower import StepFollower as StepFollower
    from probe_recording.step_phases import NO_BACKWARD as NO_BACKWARD
    from probe_recording.step_phases import NO_STEP as NO_STEP
    from probe_recording.step_phases import StepPhase as StepPhase
    from probe_recording.step_phases import StepPhases as StepPhases
    from probe_recording.step_phases import flatten_leaves as flatten_leaves
    from probe_recording.tasks import TaskRecorder as TaskRecorder
    from probe_recording.threads import Threads as Threads
    from probe_recording.values import SCALARS as SCALARS
    from probe_recording.values import Collector as Collector
    from probe_recording.values import Walk as Walk


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
        "specs": "CaptureSpec InterceptorSpec RecorderSpec TaskSpec",
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
