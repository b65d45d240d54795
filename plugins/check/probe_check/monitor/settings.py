"""The configuration of the monitor (docs/monitor.md#fields)."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe_recording.api import Fields
from probe_recording.framework import ConfigWarning
from probe_recording.messages import note

from probe_check.monitor.alert_settings import AlertSettings, parse_alert
from probe_check.monitor.directories import parse_time
from probe_check.monitor.tasks import OPERATIONS
from probe_core.errors import UserError
from probe_core.files.atomic import write_text
from probe_core.files.user_files import load_object

FORMATS = ("csv", "tensorboard", "api")
FLAG_FIELDS = (
    "param_distribution", "wg_distribution", "xy_distribution", "mv_distribution", "ur_distribution",
    "mg_direction", "all_xy", "forward_only", "backward_only", "monitor_mbs_grad", "recording_l2_features",
    "print_struct", "stack_info", "dynamic_on",
)  # fmt: skip
"""Fields that are true or false, and false if they are left out."""
COMMUNICATION_FIELDS = ("enable", "cc_codeline", "cc_pre_hook", "cc_log_only")
FEATURE_HOOKS = ("attention_hook", "linear_hook")
DIMENSION_ORDERS = ("s,b,h,d", "b,s,h,d")
SIDES = ("input", "output", "input_grad", "output_grad")
OTHER_FIELDS = (
    "targets", "cc_distribution", "l2_targets", "sa_order", "format", "ops", "eps", "ndigits", "start_step",
    "step_interval", "collect_times", "step_count_per_record", "module_ranks", "squash_name",
    "append_output", "alert",
)  # fmt: skip
FIELDS = frozenset((*FLAG_FIELDS, *OTHER_FIELDS))
MAX_COUNT = 10**9
MAX_DIGITS = 20
MAX_STEPS_PER_FILE = 10**6
_SIDE_PATTERN = re.compile(r"tensor|(?:tuple|list)\[(\d{1,6})\](?::(\d{1,6}))?")
_EXAMPLE = 'For example "targets": {"layers.0": {"input": "tuple[2]:0", "output": "tensor"}}.'

SideSelection = Mapping[str, "int | None"]
"""The sides of a module to observe, each with the position in a tuple, or None for all tensors."""


@dataclass(frozen=True, slots=True)
class CommunicationSettings:
    """The section ``cc_distribution``.

    Attributes:
        is_enabled: True to observe collective operations.
        code_lines: Regular expressions for lines of code that make calls to observe; empty for all calls.
        has_inputs: True to observe the tensors before a call, too.
        is_log_only: True to print the calls of the first step, and then to end the training.
    """

    is_enabled: bool = False
    code_lines: tuple[str, ...] = ()
    has_inputs: bool = False
    is_log_only: bool = False


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """The configuration of the monitor.

    Attributes:
        flags: The names of the fields in ``FLAG_FIELDS`` that are true.
        targets: The modules and parameters to observe, each with the sides to observe; empty for all.
        communication: The section ``cc_distribution``.
        feature_targets: The modules of each hook in ``FEATURE_HOOKS``, of those that are configured.
        dimension_order: The order of the dimensions of query and key.
        format: One of ``FORMATS``.
        operations: The operations, at least one of ``OPERATIONS``.
        epsilon: The size below which an element counts as zero.
        digits: Number of decimal places in the csv.
        start_step: The first step.
        step_interval: The distance of observed steps.
        collect_times: Number of steps to observe.
        steps_per_file: Number of steps in a csv.
        ranks: The ranks that observe; empty for all.
        has_short_names: True to shorten names.
        append_range: The first and the last time stamp of directories to continue; None for a new directory.
        alert: The section ``alert``.
    """

    flags: frozenset[str] = frozenset()
    targets: Mapping[str, SideSelection] = field(default_factory=dict)
    communication: CommunicationSettings = field(default_factory=CommunicationSettings)
    feature_targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dimension_order: str = "s,b,h,d"
    format: str = "csv"
    operations: tuple[str, ...] = ("norm",)
    epsilon: float = 1e-8
    digits: int = 6
    start_step: int = 0
    step_interval: int = 1
    collect_times: int = 100_000_000
    steps_per_file: int = 1
    ranks: frozenset[int] = frozenset()
    has_short_names: bool = True
    append_range: tuple[str, str] | None = None
    alert: AlertSettings = field(default_factory=AlertSettings)

    def is_on(self, name: str) -> bool:
        """Return True if a field of ``FLAG_FIELDS`` is true."""
        return name in self.flags

    @property
    def observes_forward(self) -> bool:
        """True if the inputs and outputs of modules are observed."""
        return self.is_on("xy_distribution") and not self.is_on("backward_only")

    @property
    def observes_backward(self) -> bool:
        """True if the gradients of the inputs and outputs of modules are observed."""
        return self.is_on("xy_distribution") and not self.is_on("forward_only")


def load_settings(path: Path) -> MonitorSettings:
    """Return the configuration in a file.

    Raises:
        UserError: The file is missing or not valid, or a field has a wrong value.
    """
    return parse_settings(load_object(path, "configuration"), f"The configuration {path}")


def parse_settings(values: Mapping[str, Any], what: str = "The configuration") -> MonitorSettings:
    """Return the settings that the fields of a configuration describe.

    Args:
        values: The JSON object.
        what: The subject that error messages begin with.

    Raises:
        UserError: A field has a wrong value.
    """
    fields = Fields(values, what)
    fields.warn_unknown(FIELDS, frozenset(), "")
    output_format = fields.choice("format", FORMATS, "csv")
    return MonitorSettings(
        flags=_parse_flags(fields, output_format),
        targets=_parse_targets(fields),
        communication=_parse_communication(fields.section("cc_distribution")),
        feature_targets=_parse_feature_targets(fields),
        dimension_order=_parse_dimension_order(fields),
        format=output_format,
        operations=_parse_operations(fields),
        epsilon=_parse_epsilon(fields),
        digits=fields.number("ndigits", 1, MAX_DIGITS, 6),
        start_step=fields.number("start_step", 0, MAX_COUNT, 0),
        step_interval=fields.number("step_interval", 1, MAX_COUNT, 1),
        collect_times=fields.number("collect_times", 0, MAX_COUNT, 100_000_000),
        steps_per_file=fields.number("step_count_per_record", 1, MAX_STEPS_PER_FILE, 1),
        ranks=fields.numbers("module_ranks"),
        has_short_names=fields.flag("squash_name", True),
        append_range=_parse_append_range(fields),
        alert=parse_alert(fields.section("alert")),
    )


def _parse_flags(fields: Fields, output_format: str) -> frozenset[str]:
    flags = {name for name in FLAG_FIELDS if fields.flag(name, False)}
    if {"forward_only", "backward_only"} <= flags and "xy_distribution" in flags:
        warn(f'{fields.subject}: "forward_only" and "backward_only" are both true, so no activations are monitored')
    if "ur_distribution" in flags and output_format != "tensorboard":
        warn(f'{fields.subject}: "ur_distribution" needs "format": "tensorboard", and is ignored')
        flags.discard("ur_distribution")
    if "monitor_mbs_grad" in flags and "wg_distribution" not in flags:
        warn(f'{fields.subject}: "monitor_mbs_grad" has no effect without "wg_distribution": true')
    return frozenset(flags)


def _parse_targets(fields: Fields) -> dict[str, SideSelection]:
    value = fields.value("targets")
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(sides, dict) for sides in value.values()):
        raise fields.wrong("targets", "must be an object that holds an object for each module", _EXAMPLE)
    return {name: _parse_sides(fields, name, sides) for name, sides in value.items()}


def _parse_sides(fields: Fields, name: str, sides: Mapping[str, Any]) -> SideSelection:
    selection: dict[str, int | None] = {}
    for side, text in sides.items():
        if side not in SIDES:
            raise fields.wrong("targets", f'holds the unknown side "{side}" of "{name}"', "Choose:", SIDES)
        match = _SIDE_PATTERN.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise fields.wrong("targets", f'must not be {text!r:.40} for "{side}" of "{name}"', _EXAMPLE)
        if match[2] is not None and int(match[2]) >= int(match[1]):
            raise fields.wrong(
                "targets", f'selects a position beyond the end of the tuple in "{text}" of "{name}"', _EXAMPLE
            )
        selection[side] = None if match[2] is None else int(match[2])
    return selection


def _parse_communication(section: Fields) -> CommunicationSettings:
    section.warn_unknown(frozenset(COMMUNICATION_FIELDS), frozenset(), "")
    lines = section.names("cc_codeline", "train.py\\\\[23\\\\]")
    for line in lines:
        try:
            re.compile(line)
        except re.error as error:
            raise section.wrong(
                "cc_codeline",
                f"holds {line!r:.60}, which is no regular expression: {error}",
                'For example "cc_codeline": ["train.py\\\\[23\\\\]"].',
            ) from None
    return CommunicationSettings(
        is_enabled=section.flag("enable", False),
        code_lines=lines,
        has_inputs=section.flag("cc_pre_hook", False),
        is_log_only=section.flag("cc_log_only", False),
    )


def _parse_feature_targets(fields: Fields) -> dict[str, tuple[str, ...]]:
    section = fields.section("l2_targets")
    section.warn_unknown(frozenset(FEATURE_HOOKS), frozenset(), "")
    names = {
        hook: section.names(hook, "0:layers.0.attention") for hook in FEATURE_HOOKS if section.value(hook) is not None
    }
    if names.get("attention_hook") == ():
        del names["attention_hook"]
    return names


def _parse_dimension_order(fields: Fields) -> str:
    value = fields.value("sa_order")
    if isinstance(value, str) and value.replace(" ", "") in DIMENSION_ORDERS:
        return value.replace(" ", "")
    return fields.choice("sa_order", DIMENSION_ORDERS, "s,b,h,d")


def _parse_operations(fields: Fields) -> tuple[str, ...]:
    value = fields.value("ops")
    if value is not None and not isinstance(value, list):
        raise fields.wrong("ops", f"must be a list, not {value!r:.40}", 'For example "ops": ["norm", "max"].')
    names = list(dict.fromkeys(name for name in value or () if isinstance(name, str)))
    unknown = [item for item in value or () if item not in (*OPERATIONS, "shape", "dtype")]
    if unknown:
        operation_names = ", ".join(OPERATIONS)
        warn(f'{fields.subject}: "ops" holds {unknown[0]!r:.40}, which is ignored; known are {operation_names}')
    return tuple(name for name in names if name in OPERATIONS) or ("norm",)


def _parse_epsilon(fields: Fields) -> float:
    value = fields.value("eps")
    if value is None:
        return 1e-8
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise fields.wrong("eps", f"must be a number of at least 0, not {value!r:.40}", 'For example "eps": 1e-8.')
    return float(value)


def _parse_append_range(fields: Fields) -> tuple[str, str] | None:
    value = fields.value("append_output")
    if value in (None, []):
        return None
    example = 'For example "append_output": ["Dec03_21-34-40", "Dec03_21-34-41"].'
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(item, str) for item in value):
        raise fields.wrong("append_output", "must be empty or hold two time stamps", example)
    first, last = (parse_time(item) for item in value)
    if first is None or last is None or first > last:
        raise fields.wrong("append_output", "must hold two time stamps in order", example)
    return value[0], value[1]


def warn(text: str) -> None:
    """Warn about a configuration that works, though perhaps not as its author meant."""
    warnings.warn(text, ConfigWarning, stacklevel=2)


# -- the steps that are observed (docs/monitor.md#steps) --------------------------------------------


DYNAMIC_VARIABLE = "DYNAMIC_MONITOR"


def is_dynamic() -> bool:
    """Return True if the configuration is read again during the training."""
    return os.environ.get(DYNAMIC_VARIABLE, "").lower() == "true"


class Schedule:
    """The observed steps of one configuration.

    Args:
        settings: The configuration.
        first_step: The first step that may be observed.
    """

    def __init__(self, settings: MonitorSettings, first_step: int) -> None:
        self._settings = settings
        self._first_step = first_step
        self._observed_count = 0

    def includes(self, step: int) -> bool:
        """Return True if a step is observed."""
        offset = step - self._first_step
        return offset >= 0 and offset % self._settings.step_interval == 0 and not self.is_finished

    def count_step(self) -> None:
        """Count a step that was observed."""
        self._observed_count += 1

    @property
    def is_finished(self) -> bool:
        """True if ``collect_times`` steps were observed."""
        return self._observed_count >= self._settings.collect_times


class ConfigurationFile:
    """The configuration file of a training that is switched on and off while it runs.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._modified: float | None = None

    def load_changed_settings(self) -> MonitorSettings | None:
        """Return the settings if the file was changed and ``dynamic_on`` is true; otherwise None.

        A file that cannot be used is reported, and the monitor continues as before.
        """
        try:
            modified = self.path.stat().st_mtime
            if modified == self._modified:
                return None
            self._modified = modified
            settings = load_settings(self.path)
        except UserError as error:
            note(f"probe: the changed configuration is not used: {error.what}")
            return None
        except OSError as error:
            note(f"probe: the configuration {self.path} cannot be read: {error.strerror}.")
            return None
        return settings if settings.is_on("dynamic_on") else None

    def switch_off(self) -> None:
        """Set ``dynamic_on`` to false in the file."""
        try:
            values = load_object(self.path, "configuration") | {"dynamic_on": False}
            write_text(self.path, json.dumps(values, indent=2))
            self._modified = self.path.stat().st_mtime
        except (UserError, OSError) as error:
            note(f'probe: "dynamic_on" is not set to false in {self.path}: {error}.')
