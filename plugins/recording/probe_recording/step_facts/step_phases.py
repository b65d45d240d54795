"""The phases of a training step, each with its values: ``step_phases.json`` (docs/formats.md#step-phases-json)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from probe_recording.sites import Stack, list_stack_lines
from probe_recording.values.leaves import Tree, encode, quote

STEP_PHASES_FILE = "step_phases.json"
EARLIER_STEP_PHASES_FILE = "ladder.json"
"""The name of the file up to version 0.1, with the schema 1."""
SCHEMA = 2
"""Version of the layout; it grows where a reader of an older one would read something wrong."""

PHASES = (
    "batch", "frozen", "buffers_before", "forward", "loss", "gradient", "accumulated", "reduced", "unscaled",
    "clipped", "applied", "settings", "parameters_before", "state_before", "parameters_after", "state_after",
    "buffers",
)  # fmt: skip
"""All phases, in the order of a training step."""

NO_STEP = "no optimizer stepped before the recording of the step was stopped"
NO_BACKWARD = "no backward pass ran before the recording of the step was stopped"
"""Reasons why a step lacks phases, for all frameworks."""


@dataclass(slots=True, eq=False)
class StepPhase:
    """A phase of a step.

    Attributes:
        name: One of ``PHASES``.
        number: Number of earlier entries of this phase in the step.
        stack: The call stack of the line that the phase belongs to; None for none.
        facts: Settings and counts, as JSON.
        values: Leaves by their names; None for a value that does not exist.
    """

    name: str
    number: int
    stack: Stack | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Tree] = field(default_factory=dict)

    def text(self) -> str:
        """Return the phase as JSON."""
        stack = json.dumps(list_stack_lines(self.stack)) if self.stack is not None else "[]"
        values = ",\n  ".join(f"{quote(name)}: {encode(leaf)}" for name, leaf in self.values.items())
        return (
            f'{{"phase": "{self.name}", "number": {self.number}, "stack": {stack}, '
            f'"facts": {json.dumps(self.facts)}, "values": {{' + (f"\n  {values}" if values else "") + "}}"
        )


class StepPhases:
    """The phases of a step and rank, in the order of time.

    Attributes:
        phases: The phases.
        changed: True if anything was added since the text was made.
    """

    def __init__(self) -> None:
        self.phases: list[StepPhase] = []
        self.changed = True
        self._reasons: dict[str, str] = {}

    def add(self, phase: str, stack: Stack | None = None) -> StepPhase:
        """Add a phase, one of ``PHASES``, and return it."""
        assert phase in PHASES, phase
        number = sum(step_phase.name == phase for step_phase in self.phases)
        step_phase = StepPhase(phase, number, stack)
        self.phases.append(step_phase)
        self.changed = True
        return step_phase

    def explain_missing(self, phase: str, reason: str) -> None:
        """Note why a phase may be missing; the reason is written if the step ends without the phase."""
        assert phase in PHASES, phase
        self._reasons.setdefault(phase, reason)
        self.changed = True

    def text(self, framework: str) -> str:
        """Return the content of the file."""
        phases = {step_phase.name for step_phase in self.phases}
        missing = {phase: reason for phase, reason in self._reasons.items() if phase not in phases}
        step_phases = ",\n ".join(step_phase.text() for step_phase in self.phases)
        self.changed = False
        return (
            f'{{"schema": {SCHEMA}, "framework": "{framework}", "not_captured": {json.dumps(missing)}, '
            '"phases": [' + (f"\n {step_phases}\n" if step_phases else "") + "]}\n"
        )


def flatten_leaves(tree: Tree, name: str) -> Iterator[tuple[str, Tree]]:
    """Yield the leaves of nested lists and dicts, each with its dotted name below ``name``."""
    if type(tree) is list or type(tree) is dict:
        items = tree.items() if type(tree) is dict else enumerate(tree)
        for key, inner in items:
            yield from flatten_leaves(inner, f"{name}.{key}")
    else:
        yield name, tree
