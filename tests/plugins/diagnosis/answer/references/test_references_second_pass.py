"""Calls whose numbers do not line up are compared a second time, aligned; the table keeps its rows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from probe_diagnosis.answer.verdict import suspect_finder as suspects
from support.runs.answered import call, normal, record
from support.runs.comparing import compare

from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager

X, Y, Z, W = (normal(seed=number) for number in range(4))
DROP = [f"Functional.dropout.{n}.forward" for n in range(3)]
MUL, END = "Torch.mul.0.forward", "Torch.end.0.forward"
GOLDEN = {
    "Torch.a.0.forward": call(X, out=X),
    DROP[0]: call(X, 0.5, out=Y),
    MUL: call(Y, out=Z),
    END: call(Z, out=W),
}
TARGET = {
    "Torch.a.0.forward": call(X, out=X), DROP[0]: call(X, 0.1, out=X), DROP[1]: call(X, 0.4, out=W),
    MUL: call(W, out=X), END: call(X, out=X),
}  # fmt: skip


def report(directory: Path, target: Any = TARGET, golden: Any = GOLDEN, **options: Any) -> Report:
    paths = [record(directory / name, calls) for name, calls in (("t", target), ("g", golden))]
    (found,) = compare(Plan(*paths, directory / "o", "0", formats=("csv",), **options), Manager())
    return found


def line_of(found: Report) -> tuple[Any, str]:
    """The first cause, and the name of the row at its line of the table."""
    assert found.answer is not None
    cause = found.answer.causes[0]
    assert found.suspects[0].line == cause.line
    rows = list(csv.reader(found.files[0].open(encoding="utf-8")))
    return cause, rows[int(cause.line) - 1][0]


def test_causes_have_the_line_of_their_row(tmp_path: Path) -> None:
    a = call(X, out=X)
    golden = {
        "Torch.a.0.forward": a,
        DROP[0]: call(X, 0.5, out=Y),
        DROP[1]: call(Y, 0.5, out=Z),
        END: call(Z, out=W),
    }
    target = {
        DROP[0]: call(W, 0.9, out=W), "Torch.a.0.forward": a, DROP[1]: call(X, 0.5, out=Y),
        DROP[2]: call(Y, 0.5, out=X), END: call(X, out=X),
    }  # fmt: skip
    cause, row = line_of(report(tmp_path, target, golden))
    assert cause.row == f"{END}.input.0"
    assert row == cause.row


def test_a_call_of_one_run_has_the_line_of_its_first_row(tmp_path: Path) -> None:
    cause, row = line_of(report(tmp_path))
    assert (cause.op, cause.row) == (DROP[1], "")
    assert row == f"{DROP[1]}.input.0"


def test_an_interruption_leaves_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(suspects, "compare_aligned", interrupted)
    found = report(tmp_path)
    assert found.interrupted
    assert [path.name for path in found.files] == ["compare_result_0.csv"]
    assert len(found.files[0].read_text("utf-8").splitlines()) > 10
    assert found.answer is not None
    assert found.answer.missing[0] == "the comparison was interrupted before its end"


def test_a_matcher_that_is_missing_leaves_the_first_pass(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("probe_diagnosis.answer.references.further_passes.ALIGN", "no such matcher")
    found = report(tmp_path)
    assert found.answer is not None
    assert "shifted" in found.answer.coverage.excused


def test_calls_in_order_of_which_one_run_makes_fewer(tmp_path: Path) -> None:
    """With ``-f`` a parameter that one optimizer skips shifts the calls behind it."""
    step = [f"Tensor.mul_.{n}.forward" for n in range(3)]
    before = {f"Torch.a.{n}.forward": call(X, out=X) for n in range(3)}
    golden = before | {
        step[0]: call(X, 0.9, out=Y),
        step[1]: call(Y, 0.9, out=Z),
        step[2]: call(W, 0.9, out=X),
    }
    target = before | {step[0]: call(X, 0.9, out=Y), step[1]: call(W, 0.9, out=X)}
    found = report(tmp_path, target, golden, matcher="fuzzy")
    assert found.answer is not None
    assert found.answer.outcome.value == "AGREE", found.answer.sentence
    assert found.answer.coverage.excused == {"golden_only": 3}


LINEAR = [f"Functional.linear.{number}.forward" for number in range(2)]
BRANCHES = ["Module.actor.Linear.forward.0", "Module.critic.Linear.forward.0"]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_branches_that_are_called_in_another_order(tmp_path: Path, task: str) -> None:
    """Both runs make equally many calls with the same names, in other modules."""
    made = {BRANCHES[0]: call(X, Y, out=Z), BRANCHES[1]: call(X, W, out=Y)}

    def run(directory: Path, order: list[str]) -> Path:
        calls = {
            key: record
            for op, module in zip(LINEAR, order)
            for key, record in ((op, made[module]), (module, made[module]))
        }
        return record(directory, calls, task, construct=dict(zip(LINEAR, order)))

    paths = run(tmp_path / "t", BRANCHES[::-1]), run(tmp_path / "g", BRANCHES)
    (found,) = compare(Plan(*paths, tmp_path / "o", "0", formats=("csv",)), Manager())
    assert found.answer is not None
    assert found.answer.outcome.value == "AGREE", found.answer.sentence
    assert not found.answer.notes


def test_a_module_of_another_class_is_no_other_order(tmp_path: Path) -> None:
    paths = []
    for side, module, value in (("t", "Module.act.Tanh.forward.0", Y), ("g", "Module.act.Gelu.forward.0", Z)):
        calls = {"Functional.gelu.0.forward": call(X, side, out=value), module: call(X, out=value)}
        construct = {"Functional.gelu.0.forward": module}
        paths.append(record(tmp_path / side, calls, construct=construct))
    (found,) = compare(Plan(*paths, tmp_path / "o", "0", formats=("csv",)), Manager())
    assert found.answer is not None
    assert found.answer.causes[0].op == "Functional.gelu.0.forward"
    assert found.answer.causes[0].evidence["argument_values"] == "'t' against 'g'"
