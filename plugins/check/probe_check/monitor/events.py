"""Events of alerts: ``anomaly.json``, and the earliest events of all ranks (docs/monitor.md#events)."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from probe_check.monitor import sentences
from probe_check.monitor.alerts import Alert
from probe_check.monitor.tasks import STAGES_BY_TAG, Stage
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text
from probe_core.files.user_files import load_object

EVENT_FILE = "anomaly.json"
SORTED_FILE = "anomaly_analyse.json"
MAX_EVENTS = 10_000
"""Number of events in a file; later ones are left out, because each file is written as a whole."""


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """An event in ``anomaly.json``.

    Attributes:
        rank: The rank.
        step: The step.
        micro_step: The micro-batch.
        pp_stage: The stage of pipeline parallelism.
        vpp_stage: The number of the model on the rank.
        call_id: The position among all tensors of the step, in the order of observation.
        tag_name: The tag, such as ``0:fc.weight/rank0/post_grad``.
        message: A sentence about the figure.
        group_mates: The ranks of the process group.
    """

    rank: int
    step: int
    micro_step: int
    pp_stage: int
    vpp_stage: int
    call_id: int
    tag_name: str
    message: str
    group_mates: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """The key of the event in the file."""
        return f"{self.tag_name}_step_{self.step}_call_{self.call_id}"

    @property
    def stage(self) -> Stage:
        """The part of the step."""
        return STAGES_BY_TAG.get(self.tag_name.rpartition("/")[2], Stage.UNKNOWN)

    @property
    def order(self) -> tuple[int, ...]:
        """The sort key: earlier events are smaller.

        In the forward pass the first pipeline stage comes first, afterwards the last one.
        """
        sign = 1 if self.stage is Stage.FORWARD else -1
        stages = sign * self.vpp_stage, sign * self.pp_stage
        return self.step, self.micro_step, self.stage.value, *stages, self.call_id


def create_event(alert: Alert, rank: int, pp_stage: int, mates: tuple[int, ...], micro_steps: int) -> AlertEvent:
    """Return the event of an alert.

    Args:
        alert: The alert.
        rank: The rank.
        pp_stage: The stage of pipeline parallelism.
        mates: The ranks of the process group.
        micro_steps: Number of micro-batches of a step; a value of the whole step is in the last one.
    """
    figures = alert.figures
    tag = figures.format_tag(rank)
    micro_step = micro_steps - 1 if figures.micro_step is None else figures.micro_step
    message = sentences.format_alert(alert, tag)
    return AlertEvent(rank, alert.step, micro_step, pp_stage, figures.model, alert.order, tag, message, mates)


class EventFile:
    """The ``anomaly.json`` of one rank, which is written anew with each step that has events.

    Args:
        base: The directory ``anomaly_detected``.
        rank: The rank.
    """

    def __init__(self, base: Path, rank: int) -> None:
        self.path = base / f"rank{rank}" / EVENT_FILE
        self._events: dict[str, AlertEvent] = {}
        self.is_full = False
        make_directory(self.path.parent)
        self._write()

    def add(self, events: Iterable[AlertEvent]) -> None:
        """Add events; two events of one tensor in a step are one entry, with the message of the last.

        Raises:
            UserError: The file cannot be written.
        """
        before = len(self._events)
        has_news = False
        for event in events:
            if len(self._events) >= MAX_EVENTS and event.key not in self._events:
                self.is_full = True
                continue
            self._events[event.key] = event
            has_news = True
        if has_news or len(self._events) > before:
            self._write()

    def _write(self) -> None:
        write_events(self.path, self._events.values())


def write_events(path: Path, events: Iterable[AlertEvent]) -> None:
    """Write events as JSON.

    Raises:
        UserError: The file cannot be written.
    """
    write_text(path, json.dumps({event.key: asdict(event) for event in events}, indent=1))


def read_events(base: Path, steps: Collection[int] = ()) -> list[AlertEvent]:
    """Return the events of all ranks, earliest first.

    Args:
        base: The directory ``anomaly_detected``.
        steps: The steps to return; empty for all.

    Raises:
        UserError: The directory has no events file, or a file is not valid.
    """
    files = sorted(base.glob(f"rank*/{EVENT_FILE}")) if base.is_dir() else []
    if not files:
        raise UserError(
            f"{base} has no rank*/{EVENT_FILE}.",
            'Give the directory anomaly_detected of a training with "alert": {"dump": true}.',
        )
    events = [event for file in files for event in _read_events_file(file)]
    return sorted((e for e in events if not steps or e.step in steps), key=lambda event: event.order)


def _read_events_file(path: Path) -> list[AlertEvent]:
    return [_parse_event(path, key, value) for key, value in load_object(path, "file of events").items()]


def _parse_event(path: Path, key: str, value: Any) -> AlertEvent:
    names = {field.name for field in fields(AlertEvent)}
    if not isinstance(value, Mapping) or not names - {"group_mates"} <= value.keys():
        raise _create_event_error(path, key)
    field_values: dict[str, Any] = {name: value.get(name) for name in names}
    mates = field_values["group_mates"] or []
    is_text = isinstance(field_values["tag_name"], str) and isinstance(field_values["message"], str)
    numbers = [field_values[name] for name in names - {"tag_name", "message", "group_mates"}]
    if not is_text or not all(map(_is_whole, numbers)) or not isinstance(mates, list):
        raise _create_event_error(path, key)
    whole = {name: int(n) for name, n in field_values.items() if name not in ("tag_name", "message", "group_mates")}
    return AlertEvent(
        **whole,
        tag_name=str(field_values["tag_name"]),
        message=str(field_values["message"]),
        group_mates=tuple(int(mate) for mate in mates if _is_whole(mate)),
    )


def _is_whole(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value == int(value)


def _create_event_error(path: Path, key: str) -> UserError:
    return UserError(
        f'"{path}" holds an event with missing or wrong fields: {key:.80}.',
        "Remove this entry, or the file.",
    )
