"""All cases of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from faults.better import BETTER, REFERENCE_IS_GOLDEN
from faults.cases import Case
from faults.controls import CONTROLS
from faults.forward import FORWARD
from faults.frozen import FROZEN
from faults.further import FURTHER
from faults.held import HELD
from faults.training import TRAINING

CASES: tuple[Case, ...] = (*FORWARD.cases, *TRAINING.cases, *CONTROLS.cases, *FURTHER.cases)
PUT_ASIDE = {"frozen": FROZEN.cases, "held": HELD.cases, "better": BETTER.cases}
"""Cases that are not part of the list, by the name that stands for all of a module."""


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the cases of these names, all of the list without any.

    ``frozen``, ``held`` and ``better`` name those put aside in a module.

    Raises:
        SystemExit: There is no case of a name.
    """
    if not names:
        return list(CASES)
    every = [*CASES, *(case for cases in PUT_ASIDE.values() for case in cases)]
    known = {case.name: [case] for case in every} | PUT_ASIDE
    unknown = set(names) - known.keys()
    if unknown:
        raise SystemExit(f"No case is called {', '.join(sorted(unknown))}; there are: "
                         f"{' '.join(case.name for case in CASES)}.")  # fmt: skip
    wanted = {case.name for name in names for case in known[name]}
    return [case for case in every if case.name in wanted]


def has_reference_of_target(case: Case) -> bool:
    """Return True if the more precise run of a case is one of the target's program."""
    return case in BETTER.cases and case.name not in REFERENCE_IS_GOLDEN
