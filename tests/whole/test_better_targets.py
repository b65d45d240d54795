"""Pairs in which the target is the better one agree with a reference, and the sentence says so."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from faults.better import BETTER
from faults.cases import Case
from faults.record import record

CASES = pytest.mark.parametrize("case", BETTER.cases, ids=lambda case: case.name)


def test_there_are_fifteen() -> None:
    assert len(BETTER.cases) == 15


@CASES
def test_the_target_is_the_better_one(case: Case, tmp_path: Path, probe: Any) -> None:
    """Without the reference the pair does not agree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record(case, tmp_path, ["tensor"], with_reference=True)
    target, golden, third = (tmp_path / case.name / "tensor" / n for n in ("target", "golden", "reference"))
    found = {}
    for name, options in (("without", []), ("with", ["--reference", third])):
        output = tmp_path / name
        assert probe("compare", target, golden, "-o", output, "--format", "csv", *options) == 0, probe.err
        (file,) = output.glob("answer_*.json")
        found[name] = json.loads(file.read_text())
    assert found["without"]["verdict"] != "AGREE", found["without"]["sentence"]
    sentence = found["with"]["sentence"]
    assert sentence.startswith(
        "AGREE: where they differ, the target is at least as near to the reference as the golden"
    )
    assert found["with"]["reference"]["values"] > 0
