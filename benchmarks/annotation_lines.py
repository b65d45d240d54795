"""Lines of code that ``probe check`` annotates for the laboratory faults: ``python annotation_lines.py WORK``.

WORK is the directory that ``python -m faults --work WORK`` recorded the faults into. A line is right if it makes the
call that carries the fault, or, for a fault outside of recorded calls, if it is the first line that shows it.
"""

from __future__ import annotations

import io
import linecache
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

os.environ.setdefault("PROBE_PLUGINS", "pytorch,metrics,reporters,diagnosis,matching,precheck,workflow")

import click
from faults.listed import CASES
from faults.record import TASKS
from probe_workflow.check_result import CheckResult
from probe_workflow.comparison import compare_runs
from probe_workflow.exit_codes import OUTCOME_CODES
from probe_workflow.recording import RecordedScript, RecordingEnd
from probe_workflow.reports.annotations import list_annotations

from probe_core.plugins.manager import Manager

CAUSE_LINES = {
    "F01": r"\* scaling$",
    "F03": r"return \(norm\.weight\.float\(\) \* values\)",
    "F05": r"self\.act\(",
    "F07": r"self\.inv_freq\[.*\.float\(\)",
    "F09": r"torch\.addmm\(self\.bias|self\.c_attn\(",
    "F11": r"self\.embed_scale\.to\(",
    "F13": r"\* scaling$",
    "F15": r"position_ids = .*unsqueeze\(0\)",
    "F17": r"functional\.softmax\(",
    "F19": r"functional\.softmax\(",
    "F21": r"self\.k_proj\(",
    "F23": r"functional\.dropout\(",
    "F25": r"self\.model\)\(\*\*self\.inputs\)",
    "F27": r"torch\.sqrt\(variance \+ norm\.eps\)",
    "T01": r"loss / \(length",
    "T03": r"optimizer\.step\(\)",
    "T05": r"optimizer\.step\(\)",
    "T07": r"optimizer\.step\(\)",
    "T09": r"clip_grad_norm_\(",
    "T11": r"optimizer\.step\(\)",
    "T13": r"labels = batch\.roll|model\(input_ids=batch, labels=labels\)",
    "T15": r"self\.embed_tokens\(",
    "T17": r"loss_of\(.*\.backward\(\)",
    "image-scale": r"24 if self\.way",
    "image-smoothing": r"label_smoothing=smoothing",
    "language-rotary": r"x\.chunk\(2, -1\)|torch\.stack\(both, -1\)\.flatten\(-2\)",  # the fault is in two lines
    "language-parts": r"\(loss / share\)",
    "sound-window": r"torch\.hann_window\(",
    "sound-state": r"outputs\[:, self\.place\]",
}
"""The text of the right line for each fault."""


def annotated_line(target: Path, golden: Path, output: Path) -> str:
    """Return the source line of the first annotation of a comparison; empty if it has none."""
    with click.Context(click.Command("check")), redirect_stdout(io.StringIO()):
        _, answer = compare_runs(target, golden, None, output, Manager())
    assert answer is not None
    script = RecordedScript(RecordingEnd.COMPLETE, 0)
    annotations = list_annotations(CheckResult(golden, OUTCOME_CODES[answer.outcome], script, answer), Path.cwd())
    return linecache.getline(annotations[0].file, annotations[0].line).strip() if annotations else ""


def main() -> None:
    """Print the annotated line of each fault, and how many are right."""
    faults = [case for case in CASES if not case.is_control]
    for task in TASKS:
        right = 0
        for case in faults:
            home = Path(sys.argv[1]) / case.name / task
            line = annotated_line(home / "target", home / "golden", home / "annotated")
            is_right = bool(re.search(CAUSE_LINES[case.name], line))
            right += is_right
            print(f"{task:10} {case.name:15} {'right' if is_right else 'WRONG'}  {line}", flush=True)
        print(f"{task:10} {right} of {len(faults)} annotations are the cause's line")


if __name__ == "__main__":
    main()
