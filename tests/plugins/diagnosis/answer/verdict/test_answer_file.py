"""The answer as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.probe import Probe
from support.runs.answered import call, normal, record
from support.runs.differences import strictly

X, Y = normal(seed=1), normal(seed=2)
A, B = "Torch.a.0.forward", "Torch.b.0.forward"
PARTS = [
    "conditions", "unknown_conditions", "causes", "coverage", "remarks", "withdrawn", "notes", "baseline",
    "reference", "not_captured", "next",
]  # fmt: skip


def answered(tmp_path: Path, probe: Probe, target: Any, golden: Any, *options: str) -> Any:
    runs = [record(tmp_path / side, calls) for side, calls in (("t", target), ("g", golden))]
    assert probe("compare", *runs, "-o", tmp_path / "o", *options) == 0, probe.err
    (path,) = (tmp_path / "o").glob("answer_*.json")
    return strictly(path)


def test_the_verdict_is_the_first_field(tmp_path: Path, probe: Probe) -> None:
    calls = {A: call(X, out=Y)}
    found = answered(tmp_path, probe, calls, calls)
    assert list(found) == ["verdict", "sentence", "schema", "probe", "target", "golden", *PARTS, "steps"]
    assert (found["verdict"], found["schema"]) == ("AGREE", 2)
    assert found["sentence"] == "AGREE: equal in all 2 values that both runs recorded"
    assert found["target"] == str(tmp_path / "t" / "dump.json")
    assert found["coverage"] == {"recorded": 2, "compared": 2, "equal": 2, "not_compared": {}}
    ((rank,),) = [step["ranks"] for step in found["steps"]]
    assert (rank["rank"], rank["verdict"], rank["sentence"]) == (0, "AGREE", found["sentence"])
    assert rank.keys() >= set(PARTS)


def test_a_cause_has_its_evidence(tmp_path: Path, probe: Probe) -> None:
    target = {A: call(X, 0.5, out=X), B: call(X, out=X)}
    golden = {A: call(X, 0.25, out=Y), B: call(Y, out=Y)}
    found = answered(tmp_path, probe, target, golden, "--format", "csv")
    (cause,) = found["causes"]
    assert list(cause)[:6] == ["kind", "op", "row", "line", "statement", "brief"]
    assert cause.keys() >= {"evidence", "module", "where", "step", "rank", "same", "consequences"}
    assert (cause["kind"], cause["op"], cause["argument"]) == ("argument", A, "input.1")
    assert cause["line"]
    assert cause["argument_name"] == "", "of a framework without signatures"
    assert cause["evidence"]["argument_values"] == "0.5 against 0.25"
    assert cause["evidence"]["judged_by"] == "tensor"
    expected = np.sqrt(np.mean((X.astype(float) - Y) ** 2) / np.mean(Y.astype(float) ** 2))
    assert abs(cause["evidence"]["relative_distance"] - expected) < 1e-6
    assert cause["consequences"] == {"count": 1, "first": [B]}
    statement, brackets, evidence = cause["statement"].rpartition(" (output.0: off by ")
    assert brackets and evidence.endswith("; rounding explains at most 7.6e-06)")
    assert cause["brief"] == statement
    assert found["sentence"] == f"DIVERGED: {A} {statement}"
    assert cause["evidence"]["difference_kind"] == "value"


def test_nan_and_inf_are_no_numbers_of_json(tmp_path: Path, probe: Probe) -> None:
    broken, endless = X.copy(), X.copy()
    broken[0], endless[0] = np.nan, np.inf
    golden = {A: call(X, out=Y), B: call(Y, float("inf"), out=Y)}
    target = {A: call(X, out=broken), B: call(endless, float("nan"), out=broken)}
    found = answered(tmp_path, probe, target, golden)
    assert found["verdict"] == "DIVERGED"
    assert found["causes"][0]["op"] == A


def test_what_was_not_compared_is_listed(tmp_path: Path, probe: Probe) -> None:
    golden = {A: call(X, out=Y)}
    found = answered(tmp_path, probe, golden | {B: call(Y, out=Y)}, golden)
    assert found["coverage"] == {"recorded": 4, "compared": 2, "equal": 2, "not_compared": {"target_only": 2}}
    assert found["not_captured"] == [f"2 values recorded in the target only; the first is {B}.input.0"]


def test_tables_alone_have_no_answer(tmp_path: Path, probe: Probe) -> None:
    runs = [record(tmp_path / side, {A: call(X, out=Y)}) for side in "tg"]
    assert probe("compare", *runs, "-o", tmp_path / "o", "-c") == 0
    assert not list((tmp_path / "o").glob("answer_*"))


def test_a_keyword_is_the_name_of_its_argument(tmp_path: Path, probe: Probe) -> None:
    """And the calls that returned the inputs are named: the last with the same tensor."""
    before = {"Torch.b.0.forward": call(out=X), "Torch.b.1.forward": call(out=X)}
    target, golden = (before | {A: call(X, Y, eps=eps, out=out)} for eps, out in ((0.5, X), (0.25, Y)))
    (cause,) = answered(tmp_path, probe, target, golden)["causes"]
    assert (cause["argument"], cause["argument_name"]) == ("input.eps", "eps")
    assert cause["producers"] == {"input.0": "Torch.b.1.forward"}
    assert not any("producer" in name for name in cause["evidence"])
