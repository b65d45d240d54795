"""All cases of the benchmark."""

from __future__ import annotations

from dataclasses import replace

from conditions.case import PROGRAMS, Bits, Case, Kind, Run, Source
from conditions.planted import CONDITIONS, SEEDS
from conditions.planted_secrets import variables
from conditions.resumed import RESUMED

MAX_EQUAL_REPETITIONS = 100


def equal_cases(repetitions: int) -> list[Case]:
    """Return pairs of the same run; every other pair has recorded tensors, the others have statistics.

    Args:
        repetitions: Number of pairs per program.
    """
    return [_equal_case(program, number) for program in PROGRAMS for number in range(1, repetitions + 1)]


def _equal_case(program: str, number: int) -> Case:
    golden = Run(program, task="statistics" if number % 2 else "tensor")
    return Case(f"{program}-{number}", Kind.EQUAL, replace(golden, repetition=number), golden, bits=Bits.EQUAL)


def secret_cases() -> list[Case]:
    """Return the pair whose files must not contain a secret; see ``planted_secrets.py``."""
    runs = [Run("gpt", environment=variables(number), source=Source.HOSTILE) for number in (1, 2)]
    return [Case("environment-and-git", Kind.SECRETS, runs[0], runs[1], bits=Bits.EQUAL)]


def all_cases(repetitions: int) -> list[Case]:
    """Return all cases, sorted by kind."""
    return [*CONDITIONS, *SEEDS, *equal_cases(repetitions), *secret_cases(), *RESUMED]
