"""All cases of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from faults.cases import Case
from faults.controls import CONTROLS
from faults.forward import FORWARD
from faults.training import TRAINING

CASES: tuple[Case, ...] = (*FORWARD.cases, *TRAINING.cases, *CONTROLS.cases)


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the cases of these names, all without any.

    Raises:
        SystemExit: There is no case of a name.
    """
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        raise SystemExit(f"No case is called {', '.join(sorted(unknown))}; there are: "
                         f"{' '.join(case.name for case in CASES)}.")  # fmt: skip
    return [case for case in CASES if not names or case.name in names]
