"""Pre-check of recorded runs: every API call is run alone and compared with a high-precision reference.

Plugins of other projects import the names of ``probe_precheck.api``, and nothing else of this package: its modules
may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_precheck import api

if TYPE_CHECKING:
    from probe_precheck.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(
    __name__,
    {"api": " ".join(api.__all__)},
    former={
        "assignment": "Assignment",
        "calls": "RecordedCalls find_skip_message require_arguments",
        "checking": "INSTALLATION_ERRORS create_status_rule find_runner_spec find_tables",
        "comparison": "DetailsComparison compare_rows build_comparison_cells",
        "csvfile": "format_cell_text order_cells format_header format_rows read_table",
        "fitting": "RecordedArguments find_input_rule find_indexed_size",
        "judging": "Judge",
        "memory": "OUT_OF_MEMORY_TEXT get_max_call_bytes get_max_input_bytes",
        "model": "BACKWARD BEYOND_ROUNDING FORWARD NO_GRADIENT_TEXT NO_RECORDED_GRADIENT_TEXT Numbers Result "
        "ResultPaths UnusableCell format_one_line convert_output describe_unknown_function "
        "describe_unlisted",
        "protocols": "Receiver Replayer ResultOption SentRunner SoloRule",
        "rebuild": "Range list_descriptions is_recorded check_call_memory check_tensor_memory check_finite_range "
        "create_not_random_error read_recorded_array",
        "replaying": "NOTHING_TO_JUDGE RecomputedResult Replay",
        "releases": "RELEASES resolve_release",
        "results": "ResultFiles get_call_name append_bytes build_detail_cells lock_file open_result_file "
        "build_result_cells",
        "rules": "Rules read_package_text",
        "runner_options": "create_device_error",
        "scripts": "render_literal render_script",
        "settings": "PRECISION Settings check_names",
        "supervisor": "Job LostJob ProcessPool supervise",
        "tables": "COMPARE_DETAILS COMPARE_RESULT NUMBERS Tables",
        "translation": "select_statuses translate",
        "written": "Measure WrittenCall WrittenCheck WrittenOutput is_result read_check",
        "yardstick": "ErrorMeasurement measure create_rounding_message estimate_summands",
    },
    renamed={
        "Compared": "DetailsComparison",
        "Given": "RecordedArguments",
        "INTERNAL": "INSTALLATION_ERRORS",
        "Judged": "OutputVerdict",
        "Lost": "LostJob",
        "Measured": "ErrorMeasurement",
        "NEEDS_NONE": "NO_GRADIENT_TEXT",
        "NOT_RECORDED": "NO_RECORDED_GRADIENT_TEXT",
        "OUT_OF_MEMORY": "OUT_OF_MEMORY_TEXT",
        "Processes": "ProcessPool",
        "Recomputed": "RecomputedResult",
        "Results": "ResultPaths",
        "Walk": "ArgumentConverter",
        "api_of": "get_call_name",
        "append": "append_bytes",
        "arguments_of": "get_arguments",
        "cell_text": "format_cell_text",
        "cells": "order_cells",
        "common_value": "rebuild_plain_value",
        "compared_cells": "build_comparison_cells",
        "counted": "select_statuses",
        "described_leaves": "list_descriptions",
        "detail_cells": "build_detail_cells",
        "file_name": "make_file_name",
        "header": "format_header",
        "in_language": "translate",
        "limit_call": "check_call_memory",
        "limit_size": "check_tensor_memory",
        "lines": "format_rows",
        "literal_of": "render_literal",
        "lock": "lock_file",
        "max_call_bytes": "get_max_call_bytes",
        "max_input_bytes": "get_max_input_bytes",
        "missing_device": "create_device_error",
        "need_finite": "check_finite_range",
        "never_random": "create_not_random_error",
        "one_line": "format_one_line",
        "opened": "open_result_file",
        "package_text": "read_package_text",
        "plain_output": "convert_output",
        "problem_of": "find_skip_message",
        "range_of": "read_range",
        "recorded_array": "read_recorded_array",
        "release_named": "resolve_release",
        "rerunnable": "require_arguments",
        "result_cells": "build_result_cells",
        "rounding_message": "create_rounding_message",
        "rule_for": "find_input_rule",
        "rule_of": "create_status_rule",
        "runner_of": "find_runner_spec",
        "script_of": "render_script",
        "seed_at": "derive_seed",
        "size_of": "find_indexed_size",
        "summands": "estimate_summands",
        "tables_of": "find_tables",
        "unknown_function": "describe_unknown_function",
        "unlisted": "describe_unlisted",
        "value_of": "parse_tensor",
    },
)
