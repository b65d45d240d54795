"""The phases of a step in the answer: what is said of them, and when nothing is."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_diagnosis.phases.phase_differences import PhaseDifference
from probe_diagnosis.phases.phase_distances import get_noise, load_limits
from probe_diagnosis.phases.phase_search import PhaseSearch
from probe_diagnosis.phases.phases_file import SCHEMAS, STEP_PHASES_FILE, PhasesFile, read_phases
from probe_metrics.dtype_limits import get_eps
from probe_metrics.thresholds import load_thresholds
from probe_recording.step_facts.step_phases import PHASES, STEP_PHASES_FILE
from probe_recording.step_facts.step_phases import SCHEMA as WRITTEN

Entries = list[dict[str, Any]]
NAMES = ["a", "b", "c"]


def leaf(norm: float, dtype: str = "float32", size: int = 4) -> dict[str, Any]:
    """A tensor whose statistics all grow with its norm."""
    return {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": [size],
            "Max": norm / 2, "Min": -norm / 2, "Mean": norm / 8, "Norm": norm}  # fmt: skip


def step_phase(phase: str, values: dict[str, float] | None = None, **facts: Any) -> dict[str, Any]:
    leaves = {name: leaf(norm) for name, norm in (values or {}).items()}
    return {"phase": phase, "number": 0, "stack": [f"File train.py, line 3, in {phase}, \n {phase}()"],
            "facts": facts, "values": leaves}  # fmt: skip


def each(*norms: float) -> dict[str, float]:
    return dict(zip(NAMES, norms))


GRADIENTS, PARAMETERS = each(0.1, 0.2, 0.3), each(1.0, 2.0, 3.0)


def step(
    *,
    given: dict[str, float] = GRADIENTS,
    between: Entries | None = None,
    applied: dict[str, float] = GRADIENTS,
    settings: dict[str, Any] | None = None,
    before: dict[str, float] = PARAMETERS,
    after: dict[str, float] = PARAMETERS,
    unchanged: int = 0,
    optimizer: str = "AdamW",
) -> Entries:
    """The phases of a step."""
    groups = [{"settings": {"lr": 1e-3, "foreach": None, **(settings or {})}, "parameters": NAMES}]
    shares = {name: [unchanged, 100] for name in NAMES}
    return [
        step_phase("loss", {"loss.0": 2.0}), step_phase("gradient", given), *(between or []),
        step_phase("settings", optimizer=optimizer, groups=groups), step_phase("applied", applied, optimizer=optimizer),
        step_phase("parameters_before", before, optimizer=optimizer),
        step_phase("parameters_after", after, optimizer=optimizer, unchanged=shares),
    ]  # fmt: skip


def step_phases(directory: Path, step_phases: Entries) -> PhasesFile:
    directory.mkdir()
    content = {
        "schema": SCHEMAS[STEP_PHASES_FILE][0],
        "framework": "pytorch",
        "not_captured": {},
        "phases": step_phases,
    }
    (directory / STEP_PHASES_FILE).write_text(json.dumps(content))
    found = read_phases(directory)
    assert found is not None
    return found


def steps(directory: Path, target: Entries, golden: Entries, noise: float = 0.0) -> list[PhaseDifference]:
    return list(
        PhaseSearch(
            step_phases(directory / "t", target), step_phases(directory / "g", golden), noise
        ).iterate_differences()
    )


def test_equal_steps_say_nothing(tmp_path: Path) -> None:
    assert steps(tmp_path, step(), step()) == []


def test_a_difference_knows_the_steps_of_optimizers_before_it(tmp_path: Path) -> None:
    wrong = [*step(), *step(settings={"lr": 1e-4}, after=each(1.0, 2.1, 3.0))]
    (found,) = steps(tmp_path, wrong, [*step(), *step()])
    assert found.optimizer_step == 1


@pytest.mark.parametrize(("norm", "shape", "is_other"), [(2.0, [], False), (2.0, [1], False), (2.5, [1], True)])
def test_a_backward_pass_from_another_value(norm: float, shape: list[int], is_other: bool, tmp_path: Path) -> None:
    target, golden = step(), step()
    for entries, value, sizes in ((target, norm, shape), (golden, 2.0, [])):
        statistics = dict.fromkeys(("Max", "Min", "Mean", "Norm"), value)
        entries[0]["values"]["loss.0"] = leaf(value) | {"shape": sizes} | statistics
    search = PhaseSearch(step_phases(tmp_path / "t", target), step_phases(tmp_path / "g", golden), 0.0)
    found = search.find_other_loss()
    assert (found is not None) is is_other
    if found is not None:
        assert found.statement.text == "the backward pass starts from another value (loss.0: 2.5 against 2)"
        assert "in loss" in found.step_phase.where


def test_rounding_says_nothing(tmp_path: Path) -> None:
    near = {name: norm * (1 + 5e-5) for name, norm in GRADIENTS.items()}
    assert steps(tmp_path, step(applied=near, after=PARAMETERS | {"b": 2.0001}), step()) == []


def test_another_learning_rate(tmp_path: Path) -> None:
    wrong = step(settings={"lr": 1e-4, "foreach": True}, after=each(1.0, 2.1, 3.0))
    (found,) = steps(tmp_path, wrong, step())
    assert found.statement.text == (
        "AdamW steps with lr 0.0001 against 0.001, and leaves other parameters (b: norm 2.1 against 2)"
    )
    assert found.is_effective
    assert found.step_phase.where == "File train.py, line 3, in settings, settings()"


def test_a_setting_counts_as_soon_as_a_parameter_differs(tmp_path: Path) -> None:
    """It needs no difference far beyond rounding, as it explains the difference."""
    near = each(1.0, 2.0 + 3e-5, 3.0)
    assert steps(tmp_path, step(after=near), step()) == []
    again = tmp_path / "again"
    again.mkdir()
    (found,) = steps(again, step(settings={"lr": 1e-4, "foreach": True}, after=near), step())
    assert found.is_effective and "leaves other parameters" in found.statement.brief


def test_another_setting_without_an_effect_is_no_difference_of_values(tmp_path: Path) -> None:
    (found,) = steps(tmp_path, step(settings={"lr": 1e-4}), step())
    assert (found.statement.text, found.is_effective) == (
        "AdamW steps with lr 0.0001 against 0.001",
        False,
    )


def test_gradients_that_change_behind_the_backward_pass(tmp_path: Path) -> None:
    double = {name: 2 * norm for name, norm in GRADIENTS.items()}
    (found,) = steps(tmp_path, step(applied=double), step())
    assert found.statement.text == (
        "gradients agree in their statistics within rounding at the end of the backward pass, and differ when AdamW "
        "takes them: all 3 are 2 times the golden's (c: norm 0.6 against 0.3; 2 more differ)"
    )
    assert found.evidence["factor"] == 2.0


def test_clipping_in_one_run(tmp_path: Path) -> None:
    clip = step_phase("clipped", {"total_norm": 3.0}, function="clip_grad_norm_", max_norm=1.0)
    third = {name: norm / 3 for name, norm in GRADIENTS.items()}
    (found,) = steps(tmp_path, step(), step(between=[clip], applied=third))
    assert found.statement.brief.endswith(
        "; between these, the golden calls clip_grad_norm_(max_norm=1), the target does not"
    )
    assert "in clipped" in found.where


def test_gradients_that_were_not_set_to_zero(tmp_path: Path) -> None:
    sums = each(0.15, 0.3, 0.4)
    (found,) = steps(tmp_path, step(between=[step_phase("accumulated", sums)], applied=sums), step())
    assert found.statement.text.startswith(
        "the target adds the gradients of this backward pass to earlier ones, the golden does not, and the sums "
        "differ (c: norm 0.4 against 0.3"
    )
    assert "in loss" in found.where


def test_the_first_of_two_backward_passes_adds_to_gradients_of_an_earlier_step(tmp_path: Path) -> None:
    """With micro-batches, the second pass of both runs adds to earlier gradients."""
    once, twice = each(0.15, 0.3, 0.4), each(0.2, 0.4, 0.6)
    second = [step_phase("loss", {"loss.0": 1.0}), step_phase("gradient", GRADIENTS)]
    target = step(between=[step_phase("accumulated", once), *second, step_phase("accumulated", twice)], applied=twice)
    (found,) = steps(tmp_path, target, step(between=[*second, step_phase("accumulated", once)], applied=once))
    gradient = found.step_phase.values["c"]
    assert gradient is not None and gradient.statistics[3] == 0.4
    assert found.statement.text.startswith("the target adds the gradients of this backward pass to earlier ones")


def test_gradients_that_the_optimizer_of_one_run_does_not_take(tmp_path: Path) -> None:
    """They were cleared between the backward pass and the step."""
    cleared = step(after=each(1.0, 2.0, 2.5))
    for one in cleared:
        if one["phase"] == "applied":
            one["values"] = dict.fromkeys(NAMES)
    first, *_ = steps(tmp_path, cleared, step())
    assert first.is_effective
    assert first.statement.text == (
        "AdamW receives the gradient of a, b and 1 more, which arrives in both runs, in the golden only"
    )


def test_adding_to_zeros_is_no_difference(tmp_path: Path) -> None:
    assert steps(tmp_path, step(between=[step_phase("accumulated", GRADIENTS)]), step()) == []


def test_reduction(tmp_path: Path) -> None:
    double = {name: 2 * norm for name, norm in GRADIENTS.items()}
    runs = [step(between=[step_phase("reduced", norms)], applied=norms) for norms in (double, GRADIENTS)]
    (found,) = steps(tmp_path, *runs)
    assert "before their reduction over the ranks, and differ after it" in found.statement.text


def test_gradients_that_differ_from_the_beginning_are_left_to_the_walk(tmp_path: Path) -> None:
    double = {name: 2 * norm for name, norm in GRADIENTS.items()}
    assert steps(tmp_path, step(given=double, applied=double), step()) == []


def test_a_gradient_that_is_zero_in_theory_is_rounding(tmp_path: Path) -> None:
    runs = [step(applied=GRADIENTS | {"a": tiny}, given=GRADIENTS | {"a": 1e-9}) for tiny in (3e-9, 1e-9)]
    assert steps(tmp_path, *runs) == []


def test_coarse_calls_before_make_gradients_coarse(tmp_path: Path) -> None:
    near = {name: norm * 1.01 for name, norm in GRADIENTS.items()}
    assert len(steps(tmp_path, step(applied=near), step())) == 1
    again = tmp_path / "again"
    again.mkdir()
    assert steps(again, step(applied=near), step(), get_noise("bfloat16")) == []


def test_a_step_that_is_computed_otherwise(tmp_path: Path) -> None:
    other = step(after=each(1.0, 2.1, 3.0))
    (found,) = steps(tmp_path, other, step())
    assert found.statement.text.startswith("AdamW leaves other parameters, although its settings and the statistics of")
    near = {name: norm * (1 + 1e-7) for name, norm in GRADIENTS.items()}
    again = tmp_path / "again"
    again.mkdir()
    assert steps(again, step(after=each(1.0, 2.1, 3.0), applied=near), step()) == []


def test_updates_that_are_lost(tmp_path: Path) -> None:
    (found,) = steps(tmp_path, step(unchanged=90), step(unchanged=10))
    assert (
        found.statement.text == "AdamW leaves 90% of 300 sampled elements of its parameters unchanged, the golden's 10%"
    )
    assert not found.is_effective


def test_other_numbers_of_backward_passes_are_not_compared(tmp_path: Path) -> None:
    wrong = [step_phase("gradient", GRADIENTS), *step(applied=each(1.0, 1.0, 1.0))]
    assert steps(tmp_path, wrong, step()) == []


def test_a_batch_and_parameters_that_differ(tmp_path: Path) -> None:
    runs = [[step_phase("batch", {"input.0": norm}), *step(before=before)]
            for norm, before in ((1.0, PARAMETERS), (2.0, PARAMETERS | {"a": 4.0}))]  # fmt: skip
    first, second = steps(tmp_path, *runs)
    assert first.statement.text == "the model receives another batch (input.0: norm 1 against 2)"
    assert second.statement.text == "parameters differ before the step (a: norm 1 against 4)"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": 3, "not_captured": {}, "phases": []}',
                                     '{"schema": 2, "not_captured": {}, "phases": [{"phase": 1}]}'])  # fmt: skip
def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / STEP_PHASES_FILE).write_text(content)
    assert read_phases(tmp_path) is None


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    expected = step_phases(tmp_path / "new", step())
    content = json.loads((tmp_path / "new" / STEP_PHASES_FILE).read_text())
    earlier = {**content, "schema": 1, "rungs": content.pop("phases")}
    (tmp_path / "ladder.json").write_text(json.dumps(earlier))
    assert read_phases(tmp_path) == expected


def test_reader_and_limits_are_those_of_the_recorder_and_the_policy() -> None:
    assert SCHEMAS[STEP_PHASES_FILE][0] == WRITTEN
    drift = load_thresholds("drift")
    assert load_limits()["noise"] == drift["noise"]
    assert load_limits()["jump"] == drift["jump"]
    for dtype, count in drift["noise"].items():
        assert get_noise(dtype) == count * get_eps(dtype)
    text = files("probe_diagnosis.phases").joinpath("limits.yaml").read_text("utf-8")
    assert set(yaml.safe_load(text)) == {"eps", "noise", "jump", "harmless", "unchanged", "one_factor"}
    assert {"accumulated", "reduced", "applied"} < set(PHASES)


def test_carried_rounding_is_that_of_gradients_that_are_zero_in_theory(tmp_path: Path) -> None:
    """Their parameters and the state of these are known; they are no parameters that differ before the step."""
    gradients = each(1e-9, 0.2, 0.3)
    state = {"a.exp_avg": 1e-9, "b.exp_avg": 0.2}
    runs = [
        step_phases(
            tmp_path / name,
            [*step(given=gradients, applied=gradients, before={**PARAMETERS, "a": norm}),
             step_phase("state_before", state, optimizer="AdamW")],
        )
        for name, norm in (("t", 1.0), ("g", 2.0))
    ]  # fmt: skip
    search = PhaseSearch(*runs, get_noise("float32"), get_noise("float32"))
    assert search.find_unsettled() == {"a"}
    assert [value.statistics[3] for value in search.list_unsettled_values()] == [1.0, 1e-9]
    assert not [found for found in search.iterate_differences() if found.step_phase.name == "parameters_before"]
    alone = PhaseSearch(*runs, get_noise("float32"))
    assert [found.step_phase.name for found in alone.iterate_differences()] == ["parameters_before"]
