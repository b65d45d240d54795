"""The reporting of alerts: printed lines, events, and the recording of the next steps."""

from __future__ import annotations

from collections.abc import Sequence

from probe_recording.messages import note

from probe_check.monitor import sentences
from probe_check.monitor.alerts import Alert, AlertScanner
from probe_check.monitor.directories import EVENT_DIRECTORY, get_output_base
from probe_check.monitor.events import EventFile, create_event
from probe_check.monitor.figures import Figures
from probe_check.monitor.recording import StepRecorder
from probe_check.monitor.settings import MonitorSettings

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
