"""The settings of a comparison while the program runs: the fields ``bench_path`` and ``diff_nums``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probe_recording.fields import MAX_NUMBER, Fields

FIELDS = frozenset({"bench_path", "diff_nums"})

DEFAULT_CALL_COUNT = 3
"""Number of differing calls that keep their tensors.

The first one is the cause, unless calls around it are compared before it: a module ends after the calls inside
it. Later calls differ because they receive what an earlier one returned.
"""


@dataclass(frozen=True, slots=True)
class DiffCheck:
    """The settings of a comparison while the program runs.

    Attributes:
        golden: The directory of the golden, made absolute, because the program may change its working directory.
        call_count: Number of differing calls that keep their tensors.
        shown_path: The directory as the user wrote it.
    """

    golden: Path
    call_count: int = DEFAULT_CALL_COUNT
    shown_path: str = ""


def read_diff_check(section: Fields) -> DiffCheck | None:
    """Return the settings in the section of a task; None without ``bench_path``.

    Raises:
        UserError: A field has a wrong value.
    """
    golden = section.path("bench_path")
    count = section.number("diff_nums", 1, MAX_NUMBER, DEFAULT_CALL_COUNT)
    return None if golden is None else DiffCheck(golden.absolute(), count, str(golden))
