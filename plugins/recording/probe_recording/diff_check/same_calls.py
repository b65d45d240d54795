"""The configuration that records the tensors of the same calls of the golden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from probe_core.files.atomic import write_text
from probe_recording.diff_check.call_judge import CallJudge


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
