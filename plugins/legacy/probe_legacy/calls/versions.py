"""The versions of the older tools that can be written, and the operators that each of them wrapped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import write_text
from probe_core.files.packaged import load_yaml

PARTIAL_MODES = ("list", "range")
"""Modes that record parts of a program."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an older tool, with the properties that determine its files.

    Attributes:
        name: The number of the version, as in the names of its directories.
        records_inside: True if calls inside of a recorded call are recorded as well.
        flag: The second field of a row.
        has_norm: True if the statistics end with the norm.
        filters: True if only floating tensors with a dimension and an element are recorded by default.
        stacks_first: The modes in which the row of a call stack precedes those of the values.
        takes_directory: True if ``set_dump_path`` is given a directory; the files are then called dump.
        sides: True if ``dump_mode`` also selects inputs and outputs.
        recurrent: The recurrent layers that are recorded.
    """

    name: str
    records_inside: bool = True
    flag: int = 1
    has_norm: bool = False
    filters: bool = True
    stacks_first: frozenset[str] = frozenset(PARTIAL_MODES)
    takes_directory: bool = False
    sides: bool = False
    recurrent: frozenset[str] = frozenset({"VF.lstm"})


PTDBG = {
    "2.3": Version("2.3"),
    "4.0": Version("4.0", False, 0, True, False, frozenset(), True, True),
}
"""The versions of ptdbg_ascend."""
HOOKS = Version("3.0.rc3", filters=False, recurrent=frozenset())
"""The version of torch_npu.hooks."""


def find_version(name: str) -> Version:
    """Return a version of ptdbg_ascend.

    Raises:
        UserError: It cannot be written.
    """
    if name not in PTDBG:
        raise UserError(f"ptdbg_ascend {name!s:.20} cannot be written.", "Choose one of these versions:", list(PTDBG))
    return PTDBG[name]


def write_operators(version: Version, path: Path) -> None:
    """Write the operators that a version wrapped, in the form of ``support_wrap_ops.yaml``."""
    write_text(path, json.dumps(load_operators(version.name)))


def load_operators(version: str) -> dict[str, list[str]]:
    """Return the names of the operators that a version wrapped, by families."""
    differences = load_yaml(__package__, "ops.yaml")[version]
    today = load_yaml("probe_pytorch.capture", "support_wrap_ops.yaml")
    return {family: _apply_difference(names or [], differences.get(family, {})) for family, names in today.items()}


def _apply_difference(names: list[str], difference: Mapping[str, list[str]]) -> list[str]:
    if "only" in difference:
        return difference["only"]
    removed = difference.get("less", [])
    begins = tuple(name.removesuffix("*") for name in removed if name.endswith(".*"))
    remaining = [name for name in names if name not in removed and not (begins and name.startswith(begins))]
    return [*remaining, *difference.get("more", [])]
