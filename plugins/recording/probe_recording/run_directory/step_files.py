"""The files of one step and rank (docs/formats.md#dump-json)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from probe_recording.file_names import LOST_FIELD, PROBE_FIELD, SELECTED_TENSORS_FIELD, SLICES_FIELD, UNFINISHED_FIELD
from probe_recording.run_directory.directory import DEBUG_FILE, DUMP_FILE, StepDirectory
from probe_recording.run_directory.record_table import RecordTable
from probe_recording.settings.config import Config
from probe_recording.settings.recorded_settings import SETTINGS_FIELD
from probe_recording.settings.slices import describe_slices
from probe_recording.step_facts.conditions import CONDITIONS_FILE, Conditions
from probe_recording.step_facts.step_phases import STEP_PHASES_FILE, StepPhases
from probe_recording.step_facts.tokens import TOKENS_FILE, BatchTokens


class StepFiles:
    """The files of one step and rank, each of which is replaced as a whole when it is written.

    Args:
        config: The settings of the recording.
        directory: The directory of the step.
        framework: The name of the framework.
        shown: The directory as the user wrote it, for the header of the run.

    Attributes:
        directory: The same.
        shown: The same.
        name: The name of the file of records.
        is_new: True if the header has changed since the records were written.
    """

    def __init__(self, config: Config, directory: StepDirectory, framework: str, shown: str) -> None:
        self.directory = directory
        self.shown = shown
        self.name = DEBUG_FILE if config.level == "debug" else DUMP_FILE
        self.is_new = True
        self._config = config
        self._framework = framework
        self._notes: dict[str, Any] = {SETTINGS_FIELD: config.repeated} if config.repeated else {}
        if slices := describe_slices(config.slices, has_request=bool(config.request)):
            self._notes[SLICES_FIELD] = slices
        if config.task == "statistics" and config.saves_tensors:
            self._notes[SELECTED_TENSORS_FIELD] = True
        self._unfinished_span = (0, 0)

    def note(self, name: str, value: Any) -> None:
        """Add a field to probe's own section of the header."""
        self._notes[name] = value
        self.is_new = True

    def note_loss(self, what: str) -> None:
        """Add the failed write that ended the recording to the header."""
        self.note(LOST_FIELD, what)

    def write_extra(self, records: RecordTable) -> None:
        """Write the call stacks and the modules of the records, if the settings ask for them."""
        if self._config.extra_info and self._config.level != "debug":
            self.directory.write("stack.json", records.encode_stacks())
            self.directory.write("construct.json", records.encode_parents())

    def write_step_phases(self, phases: StepPhases | None) -> None:
        """Write the phases of the step, if there are any and they changed."""
        if phases is not None and phases.changed:
            self.directory.write(STEP_PHASES_FILE, phases.text(self._framework))

    def write_tokens(self, tokens: BatchTokens) -> None:
        """Write the samples and tokens of the batch."""
        self.directory.write(TOKENS_FILE, tokens.format_file())

    def write_conditions(self, conditions: Conditions | None) -> None:
        """Write the conditions of the step, if there are any and they changed."""
        if conditions is not None and conditions.changed:
            self.directory.write(CONDITIONS_FILE, conditions.text(self._framework))

    def write_records(self, lines: Sequence[str], *, has_tensors: bool) -> None:
        """Write the records; the header marks the step as unfinished until ``mark_complete`` overwrites the mark.

        Args:
            lines: The JSON of the records.
            has_tensors: True if the data of tensors are stored.
        """
        head = {
            "task": self._config.task,
            "level": self._config.level,
            "framework": self._framework,
            PROBE_FIELD: {UNFINISHED_FIELD: True, **self._notes},
            "dump_data_dir": f"{self.shown}/dump_tensor_data" if has_tensors else None,
        }
        text = json.dumps(head)[:-1] + ', "data": {' + ("\n " if lines else "") + ",\n ".join(lines) + "\n}}\n"
        self.directory.write(self.name, text)
        mark = f'"{UNFINISHED_FIELD}": true' + (", " if self._notes else "")
        self._unfinished_span = text.index(mark), len(mark)
        self.is_new = False

    def mark_complete(self) -> None:
        """Overwrite the mark of an unfinished step, if the records were written."""
        if self._unfinished_span[1]:
            self.directory.overwrite_with_spaces(self.name, *self._unfinished_span)
