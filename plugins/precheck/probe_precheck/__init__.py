"""Pre-check of recorded runs: every API call is run alone and compared with a high-precision reference.

The names that this module exports are the interface for plugins; each is imported on first use. The rules are
in docs/standards.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_precheck.assignment import Assignment as Assignment
    from probe_precheck.calls import RecordedCalls as RecordedCalls
    from probe_precheck.calls import problem_of as problem_of
    from probe_precheck.calls import rerunnable as rerunnable
    from probe_precheck.checking import INTERNAL as INTERNAL
    from probe_precheck.checking import rule_of as rule_of
    from probe_precheck.checking import runner_of as runner_of
    from probe_precheck.checking import tables_of as tables_of
    from probe_precheck.comparison import Compared as Compared
    from probe_precheck.comparison import compare_rows as compare_rows
    from probe_precheck.comparison import compared_cells as compared_cells
    from probe_precheck.csvfile import cell_text as cell_text
    from probe_precheck.csvfile import cells as cells
    from probe_precheck.csvfile import header as header
    from probe_precheck.csvfile import lines as lines
    from probe_precheck.csvfile import read_table as read_table
    from probe_precheck.fitting import Given as Given
    from probe_precheck.fitting import rule_for as rule_for
    from probe_precheck.fitting import size_of as size_of
    from probe_precheck.judging import Judge as Judge
    from probe_precheck.memory import OUT_OF_MEMORY as OUT_OF_MEMORY
    from probe_precheck.memory import max_call_bytes as max_call_bytes
    from probe_precheck.memory import max_input_bytes as max_input_bytes
    from probe_precheck.model import BACKWARD as BACKWARD
    from probe_precheck.model import BEYOND_ROUNDING as BEYOND_ROUNDING
    from probe_precheck.model import FORWARD as FORWARD
    from probe_precheck.model import NEEDS_NONE as NEEDS_NONE
    from probe_precheck.model import NOT_RECORDED as NOT_RECORDED
    from probe_precheck.model import Array as Array
    from probe_precheck.model import Call as Call
    from probe_precheck.model import Judged as Judged
    from probe_precheck.model import Judgement as Judgement
    from probe_precheck.model import Message as Message
    from probe_precheck.model import NotRun as NotRun
    from probe_precheck.model import Numbers as Numbers
    from probe_precheck.model import Outcome as Outcome
    from probe_precheck.model import Output as Output
    from probe_precheck.model import Outputs as Outputs
    from probe_precheck.model import Result as Result
    from probe_precheck.model import Results as Results
    from probe_precheck.model import Skipped as Skipped
    from probe_precheck.model import Status as Status
    from probe_precheck.model import UnusableCell as UnusableCell
    from probe_precheck.model import one_line as one_line
    from probe_precheck.model import plain_output as plain_output
    from probe_precheck.model import unknown_function as unknown_function
    from probe_precheck.model import unlisted as unlisted
    from probe_precheck.protocols import Receiver as Receiver
    from probe_precheck.protocols import Reference as Reference
    from probe_precheck.protocols import Replayer as Replayer
    from probe_precheck.protocols import ResultOption as ResultOption
    from probe_precheck.protocols import Runner as Runner
    from probe_precheck.protocols import SentRunner as SentRunner
    from probe_precheck.protocols import SoloRule as SoloRule
    from probe_precheck.protocols import Standard as Standard
    from probe_precheck.protocols import StatusRule as StatusRule
    from probe_precheck.rebuild import Range as Range
    from probe_precheck.rebuild import Unbuildable as Unbuildable
    from probe_precheck.rebuild import Walk as Walk
    from probe_precheck.rebuild import arguments_of as arguments_of
    from probe_precheck.rebuild import common_value as common_value
    from probe_precheck.rebuild import described_leaves as described_leaves
    from probe_precheck.rebuild import is_recorded as is_recorded
    from probe_precheck.rebuild import limit_call as limit_call
    from probe_precheck.rebuild import limit_size as limit_size
    from probe_precheck.rebuild import need_finite as need_finite
    from probe_precheck.rebuild import never_random as never_random
    from probe_precheck.rebuild import range_of as range_of
    from probe_precheck.rebuild import recorded_array as recorded_array
    from probe_precheck.rebuild import seed_at as seed_at
    from probe_precheck.rebuild import value_of as value_of
    from probe_precheck.replaying import NOTHING_TO_JUDGE as NOTHING_TO_JUDGE
    from probe_precheck.replaying import Recomputed as Recomputed
    from probe_precheck.replaying import Replay as Replay
    from probe_precheck.results import ResultFiles as ResultFiles
    from probe_precheck.results import api_of as api_of
    from probe_precheck.results import append as append
    from probe_precheck.results import detail_cells as detail_cells
    from probe_precheck.results import lock as lock
    from probe_precheck.results import opened as opened
    from probe_precheck.results import result_cells as result_cells
    from probe_precheck.rules import Rules as Rules
    from probe_precheck.rules import package_text as package_text
    from probe_precheck.scripts import file_name as file_name
    from probe_precheck.scripts import literal_of as literal_of
    from probe_precheck.scripts import script_of as script_of
    from probe_precheck.settings import PRECISION as PRECISION
    from probe_precheck.settings import RELEASES as RELEASES
    from probe_precheck.settings import RunnerOptions as RunnerOptions
    from probe_precheck.settings import Settings as Settings
    from probe_precheck.settings import check_names as check_names
    from probe_precheck.settings import missing_device as missing_device
    from probe_precheck.settings import release_named as release_named
    from probe_precheck.specs import ReferenceSpec as ReferenceSpec
    from probe_precheck.specs import RunnerSpec as RunnerSpec
    from probe_precheck.specs import StandardSpec as StandardSpec
    from probe_precheck.specs import StatusRuleSpec as StatusRuleSpec
    from probe_precheck.supervisor import Job as Job
    from probe_precheck.supervisor import Lost as Lost
    from probe_precheck.supervisor import Processes as Processes
    from probe_precheck.supervisor import supervise as supervise
    from probe_precheck.tables import COMPARE_DETAILS as COMPARE_DETAILS
    from probe_precheck.tables import COMPARE_RESULT as COMPARE_RESULT
    from probe_precheck.tables import NUMBERS as NUMBERS
    from probe_precheck.tables import Column as Column
    from probe_precheck.tables import Tables as Tables
    from probe_precheck.translation import counted as counted
    from probe_precheck.translation import in_language as in_language
    from probe_precheck.written import Measure as Measure
    from probe_precheck.written import WrittenCall as WrittenCall
    from probe_precheck.written import WrittenCheck as WrittenCheck
    from probe_precheck.written import WrittenOutput as WrittenOutput
    from probe_precheck.written import is_result as is_result
    from probe_precheck.written import read_check as read_check
    from probe_precheck.yardstick import Measured as Measured
    from probe_precheck.yardstick import measure as measure
    from probe_precheck.yardstick import rounding_message as rounding_message
    from probe_precheck.yardstick import summands as summands


__getattr__ = create_exporter(
    __name__,
    {
        "assignment": "Assignment",
        "calls": "RecordedCalls problem_of rerunnable",
        "checking": "INTERNAL rule_of runner_of tables_of",
        "comparison": "Compared compare_rows compared_cells",
        "csvfile": "cell_text cells header lines read_table",
        "fitting": "Given rule_for size_of",
        "judging": "Judge",
        "memory": "OUT_OF_MEMORY max_call_bytes max_input_bytes",
        "model": "BACKWARD BEYOND_ROUNDING FORWARD NEEDS_NONE NOT_RECORDED Array Call Judged "
        "Judgement Message NotRun Numbers Outcome Output Outputs Result Results Skipped Status UnusableCell "
        "one_line plain_output unknown_function unlisted",
        "protocols": "Receiver Reference Replayer ResultOption Runner SentRunner SoloRule Standard StatusRule",
        "rebuild": "Range Unbuildable Walk arguments_of common_value described_leaves is_recorded "
        "limit_call limit_size need_finite never_random range_of recorded_array seed_at value_of",
        "replaying": "NOTHING_TO_JUDGE Recomputed Replay",
        "results": "ResultFiles api_of append detail_cells lock opened result_cells",
        "rules": "Rules package_text",
        "scripts": "file_name literal_of script_of",
        "settings": "PRECISION RELEASES RunnerOptions Settings check_names missing_device release_named",
        "specs": "ReferenceSpec RunnerSpec StandardSpec StatusRuleSpec",
        "supervisor": "Job Lost Processes supervise",
        "translation": "counted in_language",
        "tables": "COMPARE_DETAILS COMPARE_RESULT NUMBERS Column Tables",
        "written": "Measure WrittenCall WrittenCheck WrittenOutput is_result read_check",
        "yardstick": "Measured measure rounding_message summands",
    },
)
