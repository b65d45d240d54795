"""Sentences on the calls that keep their tensors."""

from __future__ import annotations

import json
import shlex

from probe_core.errors import format_count
from probe_core.store.files import CONDITIONS_FILE
from probe_recording.diff_check.call_judge import CallJudge, KeptCall

SCRIPT = "train.py"
"""The script in commands, if the golden does not name its own."""


def list_result_lines(judge: CallJudge, run: str, same_calls: str) -> list[str]:
    """Return lines on the calls that keep their tensors, and the commands that follow.

    Args:
        judge: The judge.
        run: The directory of the run as the user wrote it.
        same_calls: The file in it that records the same calls of the golden; empty if it is not needed.
    """
    golden = judge.golden
    lines = _list_gaps(judge)
    if not judge.kept:
        if judge.compared_count:
            records = format_count(judge.compared_count, "compared record")
            verb = "agrees" if judge.compared_count == 1 else "agree"
            lines.insert(0, f"probe: {records} {verb} with {golden.shown_path}, so no tensors were kept.")
        return lines
    lines.insert(0, f"probe: {_count_kept(judge)}:")
    lines[1:1] = [f"  {_describe(call)}" for call in judge.kept]
    other = golden.shown_path
    if same_calls:
        other = "golden-tensors"
        seed = golden.settings.seed if golden.settings is not None else None
        options = "" if seed is None else f" --seed {seed}"
        options += " --double" if golden.settings is not None and golden.settings.double else ""
        lines += [
            "Keep the tensors of the same calls of the golden, with the arguments that its script had:",
            f"  probe run -o {other} --config {shlex.quote(f'{run}/{same_calls}')}{options} {_find_script(judge)}",
        ]
    return [
        *lines,
        "Then compare:" if same_calls else "Compare:",
        f"  probe compare {shlex.quote(run)} {shlex.quote(other)} -o out",
    ]


def _count_kept(judge: CallJudge) -> str:
    """Return a clause on the number of calls that keep their tensors."""
    count = judge.differing_count
    verbs = ("differs", "keeps its tensors") if count == 1 else ("differ", "keep their tensors")
    unpaired = format_count(len(judge.kept) - count, "call")
    addition = "" if len(judge.kept) == count else f", with {unpaired} that only this run makes"
    return f"{format_count(count, 'call')} {verbs[0]} from {judge.golden.shown_path} and {verbs[1]}{addition}"


def _list_gaps(judge: CallJudge) -> list[str]:
    lines = []
    if judge.unpaired_count:
        verb = "has" if judge.unpaired_count == 1 else "have"
        lines.append(f"probe: {format_count(judge.unpaired_count, 'record')} {verb} no partner in the golden.")
    if judge.missing_steps:
        steps = ", ".join(map(str, judge.missing_steps[:9]))
        noun = "step" if len(judge.missing_steps) == 1 else "steps"
        lines.append(f"probe: the golden does not have this rank in {noun} {steps}, so nothing was compared there.")
    if judge.left_out_count:
        tensors = format_count(judge.left_out_count, "tensor")
        lines.append(f"probe: the memory did not suffice for {tensors} of these calls.")
    return lines


def _describe(call: KeptCall) -> str:
    partner = ""
    if call.golden_key is None:
        partner = "  (not in the golden)"
    elif call.golden_key != call.key:
        partner = f"  ({call.golden_key} in the golden)"
    return f"step{call.step} {call.key}{partner}"


def _find_script(judge: CallJudge) -> str:
    """Return the script that the conditions of the golden name."""
    files = judge.golden.files[min(judge.golden.files)]
    conditions = next(iter(files.values())).parent / CONDITIONS_FILE
    try:
        script = json.loads(conditions.read_text("utf-8"))["facts"]["source"]["script"]
    except (OSError, ValueError, LookupError, TypeError):
        return SCRIPT
    return shlex.quote(str(script))
