"""The comparison of a recording with its golden while the program runs."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, format_count
from probe_core.files.atomic import write_text
from probe_core.store.files import CONDITIONS_FILE
from probe_recording.diff_check.call_judge import CallJudge, StoredCall
from probe_recording.diff_check.checks import check_same_way
from probe_recording.diff_check.golden_run import read_golden_run
from probe_recording.diff_check.held_tensors import HeldTensors
from probe_recording.messages import Notices, note
from probe_recording.run_directory.process import Process
from probe_recording.sessions.session import Session
from probe_recording.settings.config import Config


class GoldenComparison:
    """The comparison of the calls of a process with a golden.

    Args:
        config: The settings of the recording, which name the golden.
        framework: The name of the framework.
        process: The process.

    Attributes:
        config: The settings, with the checksums that the golden holds.

    Raises:
        UserError: The golden cannot be read, or was recorded in another way.
    """

    def __init__(self, config: Config, framework: str, process: Process) -> None:
        assert config.diff_check is not None
        golden = read_golden_run(config.diff_check.golden, config.diff_check.shown_path)
        check_same_way(golden, config, framework)
        self.config = config if golden.summary == "statistics" else replace(config, summary=golden.summary)
        self._process = process
        self._judge = CallJudge(golden, config.diff_check.call_count)
        first_step = min(step for step in golden.steps if not config.steps or step in config.steps)
        ranks = golden.files[first_step]
        self._judge.begin_step(first_step, process.rank if process.rank in ranks else min(ranks))  # reads the file

    def begin_step(self, session: Session, step: int, notices: Notices) -> None:
        """Begin to compare the calls of a session.

        Args:
            session: The session of the step.
            step: The number of the step.
            notices: Where to print an error of the golden, which must not end the training.
        """
        try:
            self._judge.begin_step(step, self._process.rank)
        except UserError as error:
            notices.print_once(f"probe: {error.what} Step {step} is not compared with it.")
        session.held = HeldTensors(session, self._judge)

    def report(self) -> None:
        """Print which calls keep their tensors, and the commands that follow."""
        file = ""
        try:
            file = write_same_calls(self._judge, self.config.dump_path, self._process.label)
        except (OSError, UserError) as error:
            note(f"probe: the configuration for the golden cannot be written: {error}")
        for line in list_result_lines(self._judge, self.config.shown_path, file):
            note(line)


# -- the configuration that records the tensors of the same calls of the golden ---------------------


def write_same_calls(judge: CallJudge, directory: Path, label: str) -> str:
    """Write a configuration that records the golden's partners of the calls that keep their tensors.

    Args:
        judge: The judge.
        directory: The directory of the run.
        label: The name of the rank's directories.

    Returns:
        The name of the file; empty if no kept call has a partner, or the golden holds tensors already.
    """
    golden = judge.golden
    keys = [call.golden_key for call in judge.stored_calls if call.golden_key is not None]
    if not keys or golden.task == "tensor":
        return ""
    steps = sorted({call.step for call in judge.stored_calls})
    settings = golden.settings
    fields: dict[str, Any] = {"task": golden.task, "level": golden.level, "step": steps}
    if settings is not None:
        fields = settings.create_config(steps)
    section = dict(fields.get("statistics", {}))
    section["tensor_list"] = [*dict.fromkeys([*section.get("tensor_list", ()), *keys])]
    if golden.summary != "statistics":
        section["summary_mode"] = golden.summary
    fields["statistics"] = section
    name = f"same_calls_{label}.json"
    write_text(directory / name, json.dumps(fields, indent=1) + "\n")
    return name


# -- sentences on the calls that keep their tensors -------------------------------------------------


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
    if not judge.stored_calls:
        if judge.compared_count:
            records = format_count(judge.compared_count, "compared record")
            verb = "agrees" if judge.compared_count == 1 else "agree"
            lines.insert(0, f"probe: {records} {verb} with {golden.shown_path}, so no tensors were kept.")
        return lines
    lines.insert(0, f"probe: {_count_kept(judge)}:")
    lines[1:1] = [f"  {_describe(call)}" for call in judge.stored_calls]
    golden_path = golden.shown_path
    if same_calls:
        golden_path = "golden-tensors"
        seed = golden.settings.seed if golden.settings is not None else None
        config = shlex.quote(f"{run}/{same_calls}")
        options = "" if seed is None else f" --seed {seed}"
        options += " --double" if golden.settings is not None and golden.settings.double else ""
        lines += [
            "Keep the tensors of the same calls of the golden, with the arguments that its script had:",
            f"  probe run -o {golden_path} --config {config}{options} {_find_script(judge)}",
        ]
    return [
        *lines,
        "Then compare:" if same_calls else "Compare:",
        f"  probe compare {shlex.quote(run)} {shlex.quote(golden_path)} -o out",
    ]


def _count_kept(judge: CallJudge) -> str:
    """Return a clause on the number of calls that keep their tensors."""
    count = judge.differing_count
    verbs = ("differs", "keeps its tensors") if count == 1 else ("differ", "keep their tensors")
    unpaired = format_count(len(judge.stored_calls) - count, "call")
    addition = "" if len(judge.stored_calls) == count else f", with {unpaired} that only this run makes"
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


def _describe(call: StoredCall) -> str:
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
