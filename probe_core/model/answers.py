"""The verdict on two whole runs, its causes, and the share of values that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from probe_core.model.rows import Reason


class Outcome(str, Enum):
    """Kinds of verdicts on two runs."""

    DIVERGED = "DIVERGED"
    AGREE = "AGREE"
    NOT_COMPARABLE = "NOT COMPARABLE"
    CANNOT_TELL = "CANNOT TELL"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of the recorded values that were compared, and of those that were not.

    Attributes:
        recorded: Number of values in either run; a pair counts once.
        compared: Number of pairs that were measured.
        excused: Number of values that were not measured, by the code of the reason.
        equal: Number of pairs whose sides are the same to the bit.
        other_arguments: Number of arguments that differ.
    """

    recorded: int
    compared: int
    excused: Mapping[str, int] = field(default_factory=dict)
    equal: int = 0
    other_arguments: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement about an op, with the evidence that makes it true.

    Attributes:
        op: The key of the op.
        row: The name of the row that shows it; empty if the whole op does.
        reason: The statement, a clause whose subject is the op, as a code with its detail.
        evidence: The numbers and texts behind the statement, by name.
        line: The place of the row in the result file; empty if there is none.
        modules: The modules around the call, innermost first.
        where: The line of code that made the call; empty if not recorded.
        caller: The line of code that called the function of ``where``, if several lines call it; else empty.
        step: The directory of the step; empty if there is only one.
        rank: The number of the rank.
        consequences: Calls that differ behind this one, in the order of the run; the first few.
        consequence_count: Number of such calls.
        same: Other calls of which the same can be said.
        first_row: The name of the op's first row in the table; empty if it is not known.
        producers: The calls that returned inputs of the op, by the places of these.
        brief: The statement without details, for the first line of an answer; empty if ``reason`` holds none.
    """

    op: str
    row: str
    reason: Reason
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    line: str = ""
    modules: tuple[str, ...] = ()
    where: str = ""
    step: str = ""
    rank: int = 0
    consequences: tuple[str, ...] = ()
    consequence_count: int = 0
    same: tuple[str, ...] = ()
    first_row: str = ""
    producers: Mapping[str, str] = field(default_factory=dict)
    brief: str = ""
    caller: str = ""


class NoteKind(str, Enum):
    """Kinds of notes: why what they state is not a cause."""

    NO_EFFECT = "no effect"
    ROUNDING = "rounding"
    HARMLESS = "harmless"
    BASELINE = "baseline"
    REFERENCE = "reference"


class Note(NamedTuple):
    """A statement that is not a cause.

    Attributes:
        kind: The reason why it is not.
        text: The statement as a sentence without a full stop.
        op: The key of the call that it is about; empty for none.
    """

    kind: NoteKind
    text: str
    op: str = ""


class Condition(NamedTuple):
    """A condition that differs between both runs, such as a seed or the version of a package.

    Attributes:
        kind: The kind of the condition.
        name: Its name within the kind.
        target: Its value in the target; empty for none.
        golden: Its value in the golden; empty for none.
        text: A sentence on it without a full stop.
        step: The directory of the step; empty if there is only one.
        rank: The number of the rank.
    """

    kind: str
    name: str
    target: str
    golden: str
    text: str
    step: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on two runs.

    Attributes:
        text: The verdict as a sentence, without the outcome.
        causes: The causes, the first one first.
        notes: Statements on calls that differ, but are not causes, and on further runs.
        missing: Sentences on what was not recorded or not compared.
        next: Commands and settings to go on with.
        baseline: Counts of the calls that a second golden run covers; empty without one.
        incomplete: Those sentences of ``missing`` that are about a whole run.
        withdrawn: Findings without an effect in their own step; a later step may show an effect.
        conditions: The conditions that differ, those first that may change numbers most.
        unknown_conditions: The runs whose conditions were not recorded: ``target``, ``golden``.
        reference: Counts of the values that a more precise run excuses; empty without one.
    """

    outcome: Outcome
    text: str
    causes: tuple[Finding, ...]
    coverage: Coverage
    missing: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    baseline: Mapping[str, Any] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()
    withdrawn: tuple[Finding, ...] = ()
    conditions: tuple[Condition, ...] = ()
    unknown_conditions: tuple[str, ...] = ()
    reference: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The verdict as a sentence that begins with the outcome."""
        return f"{self.outcome.value}: {self.text}"
