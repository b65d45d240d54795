"""Conformance tests for detectors, as a class to subclass."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from probe_diagnosis.specs import DetectorSpec
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.timeline import Detection, Timeline

_TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0,
           "Mean": 0.5, "Norm": 1.0, "requires_grad": False}  # fmt: skip
_CALL = {"input_args": [_TENSOR, {"type": "float", "value": 0.5}], "input_kwargs": {}, "output": [_TENSOR]}
_CALLS = ("Functional.relu.0.forward", "Torch.mul.0.forward", "Torch.mul.0.backward")


class DetectorConformance:
    """Tests for any detector; set ``spec`` in a subclass."""

    spec: ClassVar[DetectorSpec]

    def test_spec_is_complete(self) -> None:
        """Check that the spec has a name, a summary and an order."""
        assert self.spec.name and self.spec.summary and isinstance(self.spec.order, int)

    def test_equal_runs_and_empty_runs_have_no_cause(self) -> None:
        """Check that nothing is found where nothing differs, and that a new detector is made each time."""
        try_detector(self.spec)
        assert self.spec.make() is not self.spec.make()


def try_detector(spec: DetectorSpec) -> None:
    """Let a detector search a run without calls, and two equal runs; raise TypeError if it finds anything."""
    for calls in ({}, dict.fromkeys(_CALLS, _CALL)):
        with tempfile.TemporaryDirectory(prefix="probe_trial_") as directory:
            detections = [*spec.make().detect(_create_timeline(Path(directory), calls))]
        for detection in detections:
            if not isinstance(detection, Detection):
                raise TypeError(f"detect must yield Detection, not {type(detection).__name__}")
            raise TypeError(f"it blames {detection.op} in two equal runs")


def _create_timeline(directory: Path, calls: dict[str, Any]) -> Timeline:
    """Return the timeline of two equal runs."""
    from probe_core.flow.comparison import RunComparison
    from probe_core.model.plan import Plan

    path = directory / "dump.json"
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**head, "data": calls}))
    manager = Manager()
    if not calls:
        run = open_run(manager, path)
        return Timeline(RankFacts(), run, run)
    facts = RankFacts()
    comparison = RunComparison.open(Plan(path, path, directory, "0"), manager, path, path)
    for batch in comparison.batches(0):
        facts.add(batch)
    return Timeline(facts, comparison.opened.target, comparison.opened.golden)
