"""A resumed run against the uninterrupted one, by the phases and conditions of its first step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from probe_diagnosis.resume.restored import CheckpointPart, Omission, find_restore_failures
from support.probe import Probe
from support.runs.answered import call, normal, record

FRAMES = ["File train.py, line 9, in <module>, optimizer.step()"]
X = normal(4)
STATES = {"torch": "a0", "python": "b0"}


def leaf(size: float, count: int = 0) -> dict[str, Any]:
    if count:
        return {"type": "float", "value": float(count)}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False,
            "Max": size, "Min": -size / 2, "Mean": size / 4, "Norm": size * 1.5}  # fmt: skip


def step_phases(**changes: Any) -> dict[str, Any]:
    """Return the phases of a step; ``changes`` replace values by name, None removes them."""
    values: dict[str, dict[str, Any]] = {
        "frozen": {"embed": leaf(2.0)},
        "buffers_before": {"bn.running_mean": leaf(0.5)},
        "unscaled": {"scale": {"type": "float", "value": 1024.0}},
        "settings": {},
        "applied": {"weight": leaf(0.1)},
        "parameters_before": {"weight": leaf(1.0)},
        "state_before": {"weight.exp_avg": leaf(0.2), "weight.step": leaf(0, 7)},
        "parameters_after": {"weight": leaf(0.9)},
    }
    facts = {"optimizer": "AdamW", "scheduler.0.class": "StepLR", "scheduler.0.last_epoch": 7,
             "groups": [{"settings": {"lr": 0.1}, "parameters": ["weight"]}]}  # fmt: skip
    for name, value in changes.items():
        if name in facts:
            facts[name] = value
        elif name == "lr":
            facts["groups"] = [{"settings": {"lr": value}, "parameters": ["weight"]}]
        elif name == "last_epoch":
            facts["scheduler.0.last_epoch"] = value
        else:
            phase = next(phase for phase, held in values.items() if name in held)
            if value is None:
                del values[phase][name]
            else:
                values[phase][name] = value
    step_phases = [
        {"phase": phase, "number": 0, "stack": FRAMES, "facts": facts if phase == "settings" else
         {"optimizer": "AdamW"}, "values": held}
        for phase, held in values.items() if held or phase == "settings"
    ]  # fmt: skip
    return {"schema": 2, "framework": "pytorch", "not_captured": {}, "phases": step_phases}


def conditions(states: dict[str, str], batch: int = 0, end: str = "c0") -> dict[str, Any]:
    samples = [{"point": "forward", "states": states, "seeds": {}},
               {"point": "end", "states": dict.fromkeys(states, end), "seeds": {}}]  # fmt: skip
    return {"schema": 1, "framework": "pytorch", "facts": {"data": {"epoch": 0, "batch": batch}},
            "random": samples, "batch": {}, "draws": []}  # fmt: skip


def step(path: Path, phases: dict[str, Any], surroundings: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "step_phases.json").write_text(json.dumps(phases))
    (path / "conditions.json").write_text(json.dumps(surroundings))
    return path


@pytest.mark.parametrize(
    ("changes", "thing", "omission", "name"),
    [
        ({"weight": leaf(1.1)}, CheckpointPart.PARAMETERS, Omission.OTHER, "weight"),
        ({"embed": leaf(0.0)}, CheckpointPart.PARAMETERS, Omission.ZERO, "embed"),
        ({"bn.running_mean": leaf(0.0)}, CheckpointPart.BUFFERS, Omission.ZERO, "bn.running_mean"),
        ({"weight.exp_avg": None}, CheckpointPart.STATE, Omission.MISSING, "weight.exp_avg"),
        ({"weight.exp_avg": leaf(0.0)}, CheckpointPart.STATE, Omission.ZERO, "weight.exp_avg"),
        ({"weight.step": leaf(0, 1)}, CheckpointPart.STATE, Omission.OTHER, "weight.step"),
        ({"lr": 0.2}, CheckpointPart.SETTINGS, Omission.OTHER, "lr"),
        ({"last_epoch": 0}, CheckpointPart.SCHEDULER, Omission.OTHER, "last_epoch"),
        ({"scale": {"type": "float", "value": 65536.0}}, CheckpointPart.SCALE, Omission.OTHER, "scale"),
    ],
)
def test_each_omission_is_found_alone(
    tmp_path: Path, changes: dict[str, Any], thing: CheckpointPart, omission: Omission, name: str
) -> None:
    target_phases = step_phases()
    if "weight" in changes:  # of the parameters before the step, not of the gradients
        for step_phase in target_phases["phases"]:
            if step_phase["phase"] == "parameters_before":
                step_phase["values"]["weight"] = changes["weight"]
    else:
        target_phases = step_phases(**changes)
    target = step(tmp_path / "t", target_phases, conditions(STATES))
    golden = step(tmp_path / "g", step_phases(), conditions(STATES))
    (found,) = find_restore_failures(target, golden)
    assert (found.part, found.omission, found.name) == (thing, omission, name)
    assert find_restore_failures(golden, golden) == []


def test_random_states_and_the_position_in_the_data(tmp_path: Path) -> None:
    golden = step(tmp_path / "g", step_phases(), conditions(STATES))
    other = step(tmp_path / "t", step_phases(), conditions({**STATES, "python": "b9"}, batch=1))
    assert [(one.part, one.name) for one in find_restore_failures(other, golden)] == [
        (CheckpointPart.DATA, "batch"),
        (CheckpointPart.RANDOM, "python"),
    ]


def test_rounding_is_no_omission(tmp_path: Path) -> None:
    golden = step(tmp_path / "g", step_phases(), conditions(STATES))
    target = step(tmp_path / "t", step_phases(embed=leaf(2.0 * (1 + 1e-7))), conditions(STATES))
    assert find_restore_failures(target, golden) == []


def runs(tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    """Return a resumed run of one step, and the run of four steps whose step 2 it repeats."""
    calls = {"Functional.relu.0.forward": call(X, out=X)}
    for number in range(4):
        place = tmp_path / "full" / f"step{number}" / "rank"
        phases = step_phases() if number == 2 else step_phases(**{"weight.exp_avg": leaf(0.3 + number)})
        step(place, phases, conditions(STATES, batch=number))
        record(place, calls)
    place = tmp_path / "resumed" / "step0" / "rank"
    step(place, step_phases(**changes), conditions(STATES, batch=2))
    record(place, calls)
    return tmp_path / "resumed", tmp_path / "full"


def test_the_step_at_which_the_run_was_resumed_is_found(tmp_path: Path, probe: Probe) -> None:
    resumed, full = runs(tmp_path, lr=0.5)
    assert probe("compare", resumed, full, "--resumed", "-o", tmp_path / "o") == 0, probe.err
    assert "the setting lr of AdamW was not restored (lr: 0.5 against 0.1)" in probe.out
    (path,) = (tmp_path / "o").glob("answer_*.json")
    answer = json.loads(path.read_text())
    assert answer["verdict"] == "DIVERGED"
    assert (answer["causes"][0]["kind"], answer["causes"][0]["op"]) == (
        "not_restored", "resume.optimizer_settings",
    )  # fmt: skip


def test_a_complete_restore_agrees(tmp_path: Path, probe: Probe) -> None:
    resumed, full = runs(tmp_path)
    assert probe("compare", resumed, full, "--resumed", "-o", tmp_path / "o") == 0
    assert "AGREE" in probe.out


def test_the_step_can_be_given(tmp_path: Path, probe: Probe) -> None:
    resumed, full = runs(tmp_path)
    arguments = ("compare", resumed, full, "--resumed", "--resumed-step")
    assert probe(*arguments, "1", "-o", tmp_path / "o") == 0
    assert "the state of AdamW was not restored" in probe.out
    assert probe(*arguments, "9", "-o", tmp_path / "p") == 2
    assert "has no step '9'" in probe.err and "Traceback" not in probe.err


def test_single_steps_cannot_be_resumed_runs(tmp_path: Path, probe: Probe) -> None:
    resumed, full = runs(tmp_path)
    assert probe("compare", resumed / "step0", full, "--resumed", "-o", tmp_path / "o") == 2
    assert "is not the root of a dump" in probe.err


def test_a_golden_that_resembles_nothing_needs_a_step(tmp_path: Path, probe: Probe) -> None:
    resumed, full = runs(tmp_path)
    for path in full.rglob("step_phases.json"):
        path.unlink()
    for path in full.rglob("conditions.json"):
        path.unlink()
    assert probe("compare", resumed, full, "--resumed", "-o", tmp_path / "o") == 2
    assert "--resumed-step" in probe.err


def test_the_start_of_the_resumed_process_is_not_compared(tmp_path: Path, probe: Probe) -> None:
    """A resumed process copies its model before it loads the checkpoint, and the other one when it saves."""
    resumed, full = runs(tmp_path)
    model = ["Module.net.Net.forward.0", "Functional.relu.0.forward"]
    for run, value, is_before in ((resumed, X, True), (full, X + 1, False)):
        copy = {"Tensor.clone.0.forward": call(value, out=value)}
        rest = {name: call(X, out=X) for name in model}
        for place in run.glob("step*/rank"):
            shutil.rmtree(place / "dump_tensor_data")
            construct = {model[1]: model[0], model[0]: None}
            record(place, {**copy, **rest} if is_before else {**rest, **copy}, construct=construct)
    assert probe("compare", resumed, full, "--resumed", "-o", tmp_path / "o") == 0, probe.err
    assert "AGREE: equal" in probe.out.splitlines()[0]
    assert "from before the model was first called in the resumed process" in probe.out
