"""Parameters with other names in the two runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from probe_diagnosis.phases.parameter_names import rename_parameters
from probe_diagnosis.phases.phases_file import ParameterGroup, PhasesFile, PhaseValue, StepPhase


def value(norm: float, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> PhaseValue:
    return PhaseValue(dtype, shape, (norm / 2, -norm / 2, 0.0, norm))


def run(parameters: dict[str, PhaseValue]) -> PhasesFile:
    """The phases of a step of Adam."""
    state = {f"{name}.exp_avg": value(0.5) for name in parameters}
    group = ParameterGroup({"lr": 0.1}, tuple(parameters))
    return PhasesFile(
        (
            StepPhase("settings", 0, groups=(group,)),
            StepPhase("parameters_before", 0, values=parameters),
            StepPhase("state_before", 0, values=state),
            StepPhase("parameters_after", 0, values=parameters, unchanged=dict.fromkeys(parameters, (1, 4))),
        ),
        {},
    )


def rename(parameters: dict[str, PhaseValue], others: dict[str, PhaseValue]) -> list[str]:
    renamed = rename_parameters(run(parameters), run(others))
    names = [*renamed.phases[1].values]
    assert [*renamed.phases[0].groups[0].parameters] == names == [*renamed.phases[3].unchanged]
    assert [*renamed.phases[2].values] == [f"{name}.exp_avg" for name in names]
    return names


def test_equal_values_have_the_same_name() -> None:
    parameters = {"a.weight": value(1.0), "kept": value(5.0), "a.bias": value(2.0)}
    others = {"b.bias": value(2.0), "kept": value(5.0), "b.weight": value(1.0)}
    assert rename(parameters, others) == ["b.weight", "kept", "b.bias"]


def test_equal_values_of_several_parameters_are_paired_in_order() -> None:
    zeros = {"a.bias": value(0.0), "c.bias": value(0.0)}
    assert rename(zeros, {"b.bias": value(0.0), "d.bias": value(0.0)}) == ["b.bias", "d.bias"]


def test_other_values_are_paired_by_shape_and_dtype() -> None:
    parameters = {"a.weight": value(1.0, (2, 2)), "a.bias": value(2.0)}
    assert rename(parameters, {"b.bias": value(2.5), "b.weight": value(1.5, (2, 2))}) == ["b.weight", "b.bias"]


def test_parameters_that_only_one_run_has_keep_their_names() -> None:
    assert rename({"a": value(1.0), "frozen": value(2.0)}, {"a": value(1.0)}) == ["a", "frozen"]
    assert rename({"a": value(1.0), "b": value(1.5)}, {"c": value(2.0)}) == ["a", "b"]
    assert rename({"a": value(1.0, dtype="bfloat16")}, {"c": value(1.0)}) == ["a"]


def test_known_names_never_change() -> None:
    """A fault may exchange the values of two parameters."""
    assert rename({"a": value(1.0), "b": value(2.0)}, {"a": value(2.0), "b": value(1.0)}) == ["a", "b"]


@given(st.permutations([f"p{number}" for number in range(6)]))
def test_any_renaming_is_undone(names: list[str]) -> None:
    others = {f"p{number}": value(1.0 + number) for number in range(6)}
    parameters = {f"q{name}": others[name] for name in names}
    assert rename(parameters, others) == names
