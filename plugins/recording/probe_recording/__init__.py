"""The recording kit: parts shared by the recorders of all frameworks, and the reader of run directories.

Plugins of other distributions import the names of ``probe_recording.api``, and nothing else of
this package: its modules may change between releases. Plugins that are released with the kit may import
further modules (docs/internals.md#the-recording-kit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_recording import api

if TYPE_CHECKING:
    from probe_recording.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(
    __name__,
    {"api": " ".join(api.__all__)},
    former={
        "values.arrays": "CHECKSUMS Array",
        "capture.attribute_patches": "AttributePatches",
        "step_facts.batch_values": "BLOCK CHUNK_BLOCKS chunk_weight create_batch_entry hash_array hash_weights "
        "iterate_batch_tensors",
        "capture.call_recorder": "RunningCall",
        "capture.condition_capture": "new_condition_capture",
        "step_facts.conditions": "Conditions Draw Fact state_hash",
        "settings.config": "LEVELS TASKS ConfigWarning load_config parse_steps",
        "settings.destination": "Destination create_destination is_loopback parse_byte_count replace_destination",
        "diff_check.checks": "compare_with_golden",
        "diff_check.golden_run": "read_golden_run",
        "run_directory.directory": "SINGLE Lock StepDirectory remove_earlier_steps",
        "run_directory.earlier_run": "settle_earlier_run",
        "values.entry": "Entry",
        "step_facts.environment": "VARIABLES read_variables",
        "capture.gathering": "GradientCallback GradientCollector GradientGatherer report_gradients",
        "capture.interceptors": "ActiveSession GradientReceiver RandomStates new_interceptor",
        "recorder.interface": "allow_class_call",
        "interrupts": "defer_interrupts",
        "keeping.band": "Band BandRule Limit load_band_rule",
        "keeping.event": "Cause Event",
        "keeping.keeping_recorder": "KeepingRecorder MemorySession",
        "keeping.options": "KeepOptions parse_options",
        "keeping.readings": "iterate_statistics",
        "keeping.settings": "keep_config",
        "keeping.watch": "DEFAULT_PATH Watch list_objects unwrap_single",
        "values.leaves": "NOTHING Four Json Plain Save StoredLeaf Tree quote scalar",
        "sessions.loss": "format_steps",
        "messages": "Notices note",
        "capture.module_hooks": "RunningModule",
        "process_start.late_claim": "LateClaim",
        "process_start.starter": "ProcessStarter",
        "reading.memory": "SMALL_FILE Memory check_unchanged open_memory",
        "reading.pickle_data": "MARK PickleError PickleMachine PickledCall PickledName TruncatedPickle",
        "reading.run": "pause_collection",
        "reading.tensors": "Tensors open_tensors",
        "recorder.recorded_block": "HookSteps RecordedBlock create_block_config report_recording",
        "settings.recorded_settings": "RecordedSettings read_settings",
        "recorder.recorder_creation": "new_recorder",
        "recorder.recorder_state": "Change RecorderState",
        "sending.body": "SentTensor SentTensors encode_body",
        "sending.message": "PREFIX PROTOCOL DamagedFrame Frame FrameError FrameKind FrameLimits Prefix SentCall "
        "encode_call_head encode_frame get_counts get_number get_numbers get_session get_text "
        "parse_call parse_call_head parse_frame parse_frame_file parse_prefix",
        "sending.sender": "Sender",
        "sending.session": "SendingMixin",
        "sending.shared": "SharedName parse_shared_name",
        "sending.tls": "create_receiver_context create_sender_context format_connection_error is_mutual",
        "values.tensor_store": "Store",
        "sites": "STAND_IN Stack list_stack_files list_stack_frames is_operator list_stack_lines use_stack_finder",
        "recorder.step_follower": "StepFollower",
        "step_facts.step_phases": "NO_BACKWARD NO_STEP StepPhase StepPhases flatten_leaves",
        "capture.threads": "Threads",
        "values.collector": "SCALARS Walk",
    },
    renamed={
        "files_of": "list_stack_files",
        "frames_of": "list_stack_frames",
        "lines_of": "list_stack_lines",
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
