"""Pre-check of recorded runs: every API call is run alone and compared with a high-precision reference.

Plugins of other distributions import the names of ``probe_precheck.api``, and nothing else of
this package: its modules may change between releases.
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
        "calls": "RecordedCalls problem_of rerunnable",
        "checking": "INTERNAL rule_of runner_of tables_of",
        "comparison": "Compared compare_rows compared_cells",
        "csvfile": "cell_text cells header lines read_table",
        "fitting": "Given rule_for size_of",
        "judging": "Judge",
        "memory": "OUT_OF_MEMORY max_call_bytes max_input_bytes",
        "model": "BACKWARD BEYOND_ROUNDING FORWARD NEEDS_NONE NOT_RECORDED Numbers Result Results UnusableCell "
        "one_line plain_output unknown_function unlisted",
        "protocols": "Receiver Replayer ResultOption SentRunner SoloRule",
        "rebuild": "Range described_leaves is_recorded limit_call limit_size need_finite never_random recorded_array",
        "replaying": "NOTHING_TO_JUDGE Recomputed Replay",
        "results": "ResultFiles api_of append detail_cells lock opened result_cells",
        "rules": "Rules package_text",
        "scripts": "literal_of script_of",
        "settings": "PRECISION RELEASES Settings check_names missing_device release_named",
        "supervisor": "Job Lost Processes supervise",
        "tables": "COMPARE_DETAILS COMPARE_RESULT NUMBERS Tables",
        "translation": "counted in_language",
        "written": "Measure WrittenCall WrittenCheck WrittenOutput is_result read_check",
        "yardstick": "Measured measure rounding_message summands",
    },
)
