"""Functions of MindSpore that a record may name, with a module that stands in for it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from probe_mindspore.precheck import apis
from probe_mindspore.precheck.apis import NotRun, find_device_function
from support.cases import every


@pytest.fixture(autouse=True)
def mindspore(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every place holds functions that compute, functions that do not, and a module."""
    names = (
        "abs",
        "extra",
        "seed",
        "manual_seed",
        "set_rng_state",
        "save",
        "load",
        "tensordump",
        "print_",
        "offload",
    )
    place = SimpleNamespace(os=os, **{name: len for name in names})
    monkeypatch.setattr(apis, "_place", lambda address: place)
    monkeypatch.setattr(apis, "_list_recorded_names", lambda: frozenset({"Mint.extra"}))
    return place


@pytest.mark.parametrize("name", ["Mint.abs", "Functional.abs", "Tensor.abs", "Mint.extra"])
def test_what_the_recorder_or_the_table_lists_is_run(name: str) -> None:
    scope, _, api = name.partition(".")
    assert find_device_function(scope, api) is len


@every(
    "name",
    ["Mint.os.system", "Mint.seed", "Mint.manual_seed", "Mint.set_rng_state", "Functional.tensordump",
     "Functional.print_", "Functional.os.system", "Tensor.offload", "Tensor.save", "Mint.load", "MintFunctional.extra",
     "Mint.__class__", "Functional.os.__class__"],
)  # fmt: skip
def test_what_does_more_than_compute_is_refused(name: str) -> None:
    scope, _, api = name.partition(".")
    with pytest.raises(NotRun, match="is not known to only compute"):
        find_device_function(scope, api)
