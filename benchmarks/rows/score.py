"""Recording and comparison of a case."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows.batches import Maker
from rows.cases import Case


@dataclass(frozen=True)
class RowScore:
    """The result of a case.

    Attributes:
        case: The case.
        outcome: The outcome of the answer.
        first: The call that the first cause names; empty for none.
        is_right: True if a pair agrees, or if the fault is named first.
        compared: The number of values that were compared.
        recorded: The number of recorded values.
        unknown: The number of values whose axis of samples is not known.
        seconds: The time of the comparison.
    """

    case: Case
    outcome: str
    first: str
    is_right: bool
    compared: int
    recorded: int
    unknown: int
    seconds: float


def record(case: Case, directory: Path) -> None:
    """Record both runs of a case."""
    from probe_pytorch.debugger import PrecisionDebugger

    shutil.rmtree(directory / case.name, ignore_errors=True)
    (directory / case.name).mkdir(parents=True)
    for side, maker in (("target", case.target), ("golden", case.golden)):
        path = directory / case.name / side
        config = path.with_suffix(".json")
        settings = {"task": "tensor", "dump_path": str(path), "level": case.level, "rank": [], "step": []}
        config.write_text(json.dumps(settings))
        PrecisionDebugger._instance = None  # a process usually has one debugger; here each run has its own
        debugger = PrecisionDebugger(config_path=config)
        _run(case, maker, debugger, is_target=side == "target")
        debugger._recorder.finish()
        atexit.unregister(debugger._recorder.finish)
        PrecisionDebugger._instance = None


def _run(case: Case, maker: Maker, debugger: Any, *, is_target: bool) -> None:
    """Run one side of a case while it is recorded."""
    model, batch = case.model(is_target=is_target), maker()
    inputs = tuple(x.to(case.dtype) if x.is_floating_point() else x for x in batch.inputs)
    batch = type(batch)(inputs, batch.weights, batch.labels, batch.tokens)
    if batch.tokens is not None:
        debugger.tokens(*batch.tokens)
    debugger.start(model=model)
    batch.run(model, trains=case.trains)
    debugger.stop()
    debugger.step()


def score(case: Case, directory: Path) -> RowScore:
    """Compare both recorded runs of a case by its rows."""
    from probe_core.library import compare

    begun = time.perf_counter()
    folder = directory / case.name
    result = compare(folder / "target", folder / "golden", rows=case.rows)
    answer = result.answer
    assert answer is not None
    causes = [cause for cause in answer.causes if answer.outcome.value == "DIVERGED"]
    first = causes[0].op if causes else ""
    if case.named:
        is_right = bool(causes) and bool(re.search(case.named, f"{first} {' '.join(causes[0].modules[:1])}"))
    else:
        is_right = answer.outcome.value == "AGREE"
    coverage = answer.coverage
    return RowScore(
        case, answer.outcome.value, first, is_right, coverage.compared, coverage.recorded,
        coverage.excused.get("row_axis", 0), time.perf_counter() - begun,
    )  # fmt: skip
