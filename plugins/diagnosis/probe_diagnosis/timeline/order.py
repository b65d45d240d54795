"""Properties of calls that follow from their names and modules."""

from __future__ import annotations

from functools import cache

from probe_core.files.packaged import load_yaml
from probe_core.store.names import get_api_name, is_backward, is_module
from probe_diagnosis.timeline.call_columns import CallColumns

OPTIMIZER = "optimizer"
"""Name of the step of an optimizer, which is recorded like a module."""


def count_optimizer_steps(calls: CallColumns) -> list[int]:
    """Return for each call the number of steps of optimizers that began before it, or with it."""
    counts: list[int] = []
    count, was_in_step = 0, False
    for within in calls.modules:
        is_in_step = OPTIMIZER in within
        count += is_in_step and not was_in_step
        was_in_step = is_in_step
        counts.append(count)
    return counts


@cache
def _load_apis() -> dict[str, frozenset[str]]:
    """Return the sections of ``scales.yaml``: names of APIs by their effect on values."""
    return {section: frozenset(names) for section, names in load_yaml(__package__, "scales.yaml").items()}


def _is_listed(key: str, section: str) -> bool:
    return get_api_name(key).strip("_") in _load_apis()[section]


def is_selecting(key: str) -> bool:
    """Return True for a call of an API that selects elements by their size."""
    return _is_listed(key, "selects")


def is_move(key: str) -> bool:
    """Return True for a call that returns its input or a part of it, possibly rearranged."""
    return key.endswith(".forward") and _is_listed(key, "moves")


def is_arranging(key: str) -> bool:
    """Return True for a call that returns elements of its inputs, in another order or number."""
    return is_move(key) or _is_listed(key, "arranges")


def is_permuting(key: str) -> bool:
    """Return True for a call that returns elements of its input in another order."""
    parts = key.split(".")
    return len(parts) > 3 and parts[-1] == "forward" and parts[-3].strip("_") in _load_apis()["permutes"]


def is_storage(row: str) -> bool:
    """Return True for an argument that selects where a result is stored, without effect on its values."""
    return row.rpartition(".")[2] in _load_apis()["storage"]


def is_dividing(key: str) -> bool:
    """Return True for a call that divides element by element."""
    return key.endswith(".forward") and _is_listed(key, "divides")


def is_in_place(key: str) -> bool:
    """Return True for a call that changes its first argument, such as ``addcdiv_``."""
    name = get_api_name(key)
    return name.endswith("_") and not name.endswith("__")


def has_own_scale(key: str) -> bool:
    """Return True if the outputs of an op do not grow with its inputs."""
    if is_module(key):
        return not is_backward(key)
    return key.endswith(".forward") and _is_listed(key, "own_scale")
