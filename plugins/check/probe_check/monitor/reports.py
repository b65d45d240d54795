"""Reports that are written once: the structure of a model, call stacks, collective operations."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from probe_recording.messages import note

from probe_check.monitor import sentences
from probe_check.monitor.alerts import Alert, AlertScanner
from probe_check.monitor.csv_file import format_csv
from probe_check.monitor.directories import EVENT_DIRECTORY, STRUCTURE_DIRECTORY, get_output_base
from probe_check.monitor.events import EventFile, create_event
from probe_check.monitor.figures import Figures
from probe_check.monitor.observer import Observer
from probe_check.monitor.recording import StepRecorder
from probe_check.monitor.settings import MonitorSettings
from probe_core.files.atomic import make_directory, write_text

STRUCTURE_FILE = "module_struct.json"
STACK_FILE = "stack_info.csv"
STACK_HEADER = ("module_name", "stack_info")


class OneTimeReports:
    """The reports of one process."""

    def __init__(self) -> None:
        self._first_step: int | None = None

    def report_and_end(self, observer: Observer, step: int, directory: Path | None) -> None:
        """Write call stacks and the structure of the models, or print collective operations, and end the program.

        Raises:
            SystemExit: The configuration requests nothing but the structure or the collective operations.
            UserError: A file cannot be written.
        """
        if self._first_step is None:
            self._first_step = step
        notes = observer.take_notes()
        if notes.module_stacks and directory is not None:
            _write_stacks(notes.module_stacks, directory)
        if notes.structure is not None:
            path = write_structure(notes.structure, observer.process.rank)
            _end_program(f'the structure of the model is in {path}; "print_struct" ends the training.')
        if notes.communication_stacks is not None and step > self._first_step:
            print_stacks(notes.communication_stacks)
            _end_program('"cc_log_only" ends the training after its first step.')


def _write_stacks(stacks: Mapping[str, str], directory: Path) -> None:
    path = directory / STACK_FILE
    if not path.exists():
        make_directory(directory)
        write_text(path, format_csv([STACK_HEADER, *stacks.items()]))


def write_structure(structure: Mapping[str, Any], rank: int) -> Path:
    """Write the structure of the models, and return the path.

    Raises:
        UserError: The file cannot be written.
    """
    directory = get_output_base() / STRUCTURE_DIRECTORY / f"rank{rank}"
    make_directory(directory)
    path = directory / STRUCTURE_FILE
    write_text(path, json.dumps(structure, indent=2))
    return path


def print_stacks(stacks: Mapping[str, set[str]]) -> None:
    """Print the calls of each collective operation as JSON."""
    note(
        json.dumps({name: [stack.split(";") for stack in sorted(call_stacks)] for name, call_stacks in stacks.items()})
    )


def _end_program(reason: str) -> NoReturn:
    note(f"probe: {reason}")
    sys.exit(0)


# -- the reporting of alerts: printed lines, events, and the recording of the next steps ------------


MAX_SHOWN_ALERTS = 5
"""Number of alerts of a step that are printed."""


class AlertReporter:
    """A reporter of the alerts of one rank.

    Args:
        rank: The rank.
        pp_stage: The position of the rank in the group of pipeline parallelism.
        mates: The ranks of this group.
        micro_steps: Number of micro-batches of a step.
    """

    def __init__(self, rank: int, pp_stage: int, mates: tuple[int, ...], micro_steps: int) -> None:
        self._rank = rank
        self._pp_stage = pp_stage
        self._mates = mates
        self._micro_steps = micro_steps
        self._settings = MonitorSettings()
        self._scanner = AlertScanner(())
        self._events: EventFile | None = None
        self.recorder: StepRecorder | None = None

    def configure(self, settings: MonitorSettings) -> None:
        """Use the rules of a configuration from now on.

        Raises:
            UserError: The file of events cannot be written.
        """
        self._settings = settings
        self._scanner = AlertScanner(settings.alert.rules)
        if settings.alert.writes_events and self._events is None:
            self._events = EventFile(get_output_base() / EVENT_DIRECTORY, self._rank)

    def report(self, figures: Sequence[Figures], step: int) -> None:
        """Report the alerts of a step.

        Raises:
            UserError: The file of events cannot be written.
        """
        alerts: list[Alert] = []
        if self._settings.alert.rules:
            for order, each in enumerate(figures):
                operations = each.task.operations or self._settings.operations
                alerts += self._scanner.scan(each, operations, step, order)
        if not alerts:
            return
        self._show(alerts, step)
        if self._events is not None and self._settings.alert.writes_events:
            place = self._rank, self._pp_stage, self._mates, self._micro_steps
            self._events.add(create_event(alert, *place) for alert in alerts)
        if self.recorder is not None and self._settings.alert.recorded_steps:
            self.recorder.start(step + 1, self._settings.alert.recorded_steps)

    def _show(self, alerts: Sequence[Alert], step: int) -> None:
        for alert in alerts[:MAX_SHOWN_ALERTS]:
            note(sentences.format_alert_line(alert, alert.figures.format_tag(self._rank)))
        if len(alerts) > MAX_SHOWN_ALERTS:
            note(sentences.format_more_alerts(len(alerts) - MAX_SHOWN_ALERTS, step))
