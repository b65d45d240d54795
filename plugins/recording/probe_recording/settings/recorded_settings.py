"""The settings of a recording that the run itself states, so that another run can be recorded in the same way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_recording.file_names import PROBE_FIELD

SETTINGS_FIELD = "settings"
"""The member of probe's own section of the header that holds the settings (docs/formats.md#dump-json)."""

REPEATED_FIELDS = (
    "rank", "seed", "is_deterministic", "precision", "risk_level", "extra_info", "support_wrap_ops", "step_phases",
    "conditions", "custom_op_namespaces", "custom_wrap_ops", "stage",
)  # fmt: skip
"""Fields of ``config.json`` that decide what is recorded, besides task, level and step."""
REPEATED_SECTION_FIELDS = ("scope", "list", "tensor_list", "data_mode", "summary_mode", "slice", "request_id")
"""Such fields of a task's section."""

_MAX_HEADER_BYTES = 1 << 20
_DATA_MEMBER = ', "data": {'


@dataclass(frozen=True, slots=True)
class RecordedSettings:
    """The settings of a recording.

    Attributes:
        task: The kind of recorded data.
        level: The level of the recorded calls.
        fields: Further fields of a ``config.json``.
        seed: The value of ``--seed`` of ``probe run``; None without it.
        double: True if the script ran in float64.
    """

    task: str
    level: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    double: bool = False

    def create_config(self, steps: Sequence[int]) -> dict[str, Any]:
        """Return the content of a ``config.json`` that records the same data in these steps."""
        return {"task": self.task, "level": self.level, "step": list(steps), **self.fields}


def select_settings(fields: Mapping[str, Any], section_name: str, task: str) -> dict[str, Any]:
    """Return the fields of a configuration that another run needs to record the same data.

    Args:
        fields: The JSON object of a ``config.json``, which is valid.
        section_name: The name of the section of its task.
        task: The task, whose section holds the selected fields; another one may be a synonym of it.
    """
    selected = {name: fields[name] for name in REPEATED_FIELDS if fields.get(name)}
    section = fields.get(section_name) or {}
    inner = {name: section[name] for name in REPEATED_SECTION_FIELDS if section.get(name)}
    copied: dict[str, Any] = json.loads(json.dumps(selected | ({task: inner} if inner else {}), default=str))
    return copied


def read_settings(record_file: Path) -> RecordedSettings:
    """Return the settings that a record file states.

    Raises:
        UserError: The file cannot be read, or probe did not record it.
    """
    fix = "Record the run with probe run."
    try:
        with record_file.open("rb") as file:
            text = file.read(_MAX_HEADER_BYTES).decode("utf-8", "replace")
        head = json.loads(text.partition(_DATA_MEMBER)[0] + "}")
        settings = head[PROBE_FIELD].get(SETTINGS_FIELD, {})
        return RecordedSettings(
            str(head["task"]), str(head["level"]), dict(settings.get("config", {})), settings.get("seed"),
            bool(settings.get("double")),
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"{record_file} cannot be read: {error.strerror or error}.", fix) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f"{record_file} does not state the settings of its recording.", fix) from None
