"""Types of runs and cases, and the expected texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """Kind of a case, with the rule by which it is scored."""

    CONDITIONS = "conditions"
    SEEDS = "seeds"
    EQUAL = "equal"
    SECRETS = "secrets"
    RESUME = "resume"


class Source(Enum):
    """State of the git repository that holds the programs."""

    CLEAN = "clean"
    OTHER_COMMIT = "commit"
    MODIFIED = "modified"
    HOSTILE = "hostile"


class Bits(Enum):
    """Relation of the losses and parameters that the two programs of a case print."""

    EQUAL = "equal"
    DIFFERENT = "different"
    ANY = "any"


@dataclass(frozen=True)
class Run:
    """A program that is recorded.

    Attributes:
        arguments: Arguments of the program. ``{checkpoint}`` is replaced with the checkpoint of the program.
        environment: Variables of this run alone.
        steps: Steps to record.
        task: Task of the recording. Only recorded tensors show that two runs have the same bits.
        requirement: A package that is installed for this run alone, such as ``numpy==2.2.6``.
        repetition: Number of the repetition; runs that differ in nothing else are recorded separately.
    """

    program: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    source: Source = Source.CLEAN
    steps: str = "0-2"
    task: str = "statistics"
    requirement: str = ""
    repetition: int = 0


@dataclass(frozen=True)
class Case:
    """Two runs and what a comparison must state.

    Attributes:
        names: Regular expressions, of which one must be found; letter case does not matter. They are
            searched in the first four lines, or in the first cause if the case is of kind ``RESUME``.
        bits: Whether the programs compute the same bits. If they contradict it, the case is invalid.
        accuses_none: No operator may be accused: the difference is in a random state or in the batch.
        options: Further options of ``probe compare``.
    """

    name: str
    kind: Kind
    target: Run
    golden: Run
    names: tuple[str, ...] = ()
    bits: Bits = Bits.DIFFERENT
    accuses_none: bool = False
    options: tuple[str, ...] = ()


PROGRAMS = ("cnn", "gpt", "lstm", "vae", "policy")
SEED = (r"\bseed", r"random (number )?(state|generator)", r"\brng\b")
DRAW = (*SEED, r"random numbers?", r"\b(drew|draws?|drawn)\b", r"\brand\b")
BATCH = (r"\bbatch\b",)
