"""The section ``alert`` of the configuration (docs/monitor.md#alerts)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from probe_recording.api import Fields

ALERT_FIELDS = ("rules", "dump", "record_steps")
MAX_RECORDED_STEPS = 1000
_EXAMPLE = 'For example "rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}].'


class RuleName(Enum):
    """The kinds of alert rules."""

    TURBULENCE = "AnomalyTurbulence"
    NAN = "AnomalyNan"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """A rule of the configuration.

    Attributes:
        name: Its kind.
        threshold: Its threshold; None only for ``AnomalyNan``.
    """

    name: RuleName
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The section ``alert``.

    Attributes:
        rules: The rules, the first that fires names the event.
        writes_events: True to write ``anomaly.json``.
        recorded_steps: Number of steps that are recorded after the first event; 0 for none.
    """

    rules: tuple[RuleSettings, ...] = ()
    writes_events: bool = False
    recorded_steps: int = 0


def parse_alert(section: Fields) -> AlertSettings:
    """Return the settings that the section describes.

    Raises:
        UserError: A field has a wrong value.
    """
    section.warn_unknown(frozenset(ALERT_FIELDS), frozenset(), "")
    rules = section.value("rules")
    if rules is not None and not isinstance(rules, list):
        raise section.wrong("rules", f"must be a list, not {rules!r:.40}", _EXAMPLE)
    return AlertSettings(
        rules=tuple(_parse_rule(section, rule) for rule in rules or ()),
        writes_events=section.flag("dump", False),
        recorded_steps=section.number("record_steps", 0, MAX_RECORDED_STEPS, 0),
    )


def _parse_rule(section: Fields, rule: Any) -> RuleSettings:
    names = tuple(name.value for name in RuleName)
    if not isinstance(rule, Mapping) or rule.get("rule_name") not in names:
        raise section.wrong("rules", f"holds {rule!r:.60}, whose rule_name is unknown", "Choose:", names)
    name = RuleName(rule["rule_name"])
    arguments = rule.get("args")
    threshold = arguments.get("threshold") if isinstance(arguments, Mapping) else arguments
    is_number = isinstance(threshold, (int, float)) and 0 <= threshold < float("inf")
    if not is_number and not (threshold is None and name is RuleName.NAN):
        raise section.wrong(
            "rules", f"needs a threshold of at least 0 for {name.value}, not {threshold!r:.40}", _EXAMPLE
        )
    return RuleSettings(name, None if threshold is None else float(threshold))
