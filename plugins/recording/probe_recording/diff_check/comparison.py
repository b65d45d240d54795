"""The comparison of a recording with its golden while the program runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.files.atomic import write_text
from probe_recording.diff_check.call_judge import CallJudge
from probe_recording.diff_check.checks import check_same_way
from probe_recording.diff_check.golden_run import read_golden_run
from probe_recording.diff_check.held_tensors import HeldTensors
from probe_recording.diff_check.sentences import list_result_lines
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
    keys = [call.golden_key for call in judge.kept if call.golden_key is not None]
    if not keys or golden.task == "tensor":
        return ""
    steps = sorted({call.step for call in judge.kept})
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
