"""The advice: on which row it is, and what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_diagnosis.answer.verdict.suspect_finder import SuspectFinder
from probe_metrics.advisor import advise
from support.measuring import accuracy, tensor_value

from probe_core.model import Level, Mode, Op, RowCounts, Side, Suspect
from probe_core.model.answers import Answer, Coverage, Outcome
from probe_core.model.report import LineNumbers, Report, ReportDraft, RowCheck
from probe_core.model.single import create_batch
from probe_core.testing import pair_of_values


def advice(op: str, name: str, side: Side) -> tuple[str, str, str]:
    failure = Suspect(op, name, side, "row 7", Level.ERROR, "why")
    report = Report("", Path("a"), Path("b"), Mode.TENSOR, 1, first_failure=failure)
    found = advise(report)
    return found.line, found.node, found.text


INPUT = "1. Analyze the model to view the input source."
FORWARD = "This is a forward API computation error."
BACKWARD_INPUT = "Check whether the forward computation result is affected."
BACKWARD = "This is a backward API computation error."
RANDOM = "The API may be non-deterministic."
BATCH_NORM = "The input of batch_norm is not fixed."


@pytest.mark.parametrize(
    ("name", "side", "begins"),
    [
        ("Torch.add.0.forward.input.0", Side.INPUT, INPUT),
        ("Torch.add.0.forward.output.0", Side.OUTPUT, FORWARD),
        ("Module.fc.Linear.forward.0.parameters.weight", Side.PARAMETERS, INPUT),
        ("Torch.add.0.backward.input.0", Side.INPUT, BACKWARD_INPUT),
        ("Torch.add.0.backward.output.0", Side.OUTPUT, BACKWARD),
        ("Module.fc.Linear.parameters_grad.weight", Side.PARAMETERS_GRAD, BACKWARD),
        *(
            (f"Functional.{api}.0.{direction}.output.0", Side.OUTPUT, RANDOM)
            for api in ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")
            for direction in ("forward", "backward")
        ),
        ("Functional.conv2d.0.forward.input.0", Side.INPUT, INPUT),
        ("Functional.conv2d.0.backward.input.0", Side.INPUT, BACKWARD_INPUT),
        ("Functional.conv1d.0.forward.output.0", Side.OUTPUT, FORWARD),
        ("Functional.batch_norm.0.forward.input.1", Side.INPUT, BATCH_NORM),
        ("Functional.batch_norm.0.forward.input.0", Side.INPUT, INPUT),
        ("Functional.batch_norm.0.forward.input.10", Side.INPUT, INPUT),
        ("Functional.batch_norm.0.forward.output.0", Side.OUTPUT, FORWARD),
        ("loss.0.debug", Side.DEBUG, "A saved value differs."),
        # a layer's own name says nothing of the side
        ("Module.input_proj.Linear.forward.0.output.0", Side.OUTPUT, FORWARD),
        ("Module.input_proj.Linear.backward.0.output.0", Side.OUTPUT, BACKWARD),
    ],
)
def test_advice(name: str, side: Side, begins: str) -> None:
    """docs/tables.md#advisor, its tests in their order."""
    op = name.rpartition("put")[0].rpartition(".")[0] if "put" in name.split(".")[-2] else name
    line, node, text = advice(op, name, side)
    assert (line, node) == ("row 7", name)
    assert text.startswith(begins)


def test_advice_where_all_is_well() -> None:
    report = Report("", Path("a"), Path("b"), Mode.TENSOR, 1, counts=RowCounts(measured=1, matched=1))
    found = advise(report)
    assert (found.line, found.node) == ("NA", "NA")
    assert found.text == "All data in comparison result meets the accuracy requirements."


def test_advice_on_a_suspect_that_no_rule_of_the_table_knows() -> None:
    """It is no "all data meets" while a suspect is named, rows differ, or nothing was compared."""
    nothing = Report("", Path("a"), Path("b"), Mode.TENSOR, 1)
    assert advise(nothing).text.startswith("No value was compared")
    name = "Torch.add.0.forward.output.0"
    pair = pair_of_values(tensor_value(), tensor_value(extent="[3]"), Mode.TENSOR, name).pair
    suspect = Suspect("Torch.add.0.forward", name, Side.OUTPUT, "2", Level.ERROR, "returns values that differ")
    report = Report("", Path("a"), Path("b"), Mode.TENSOR, 1, suspects=(suspect,))
    found = advise(report)
    assert (found.line, found.node) == ("2", name)
    assert found.text.startswith("No row fails by the rule of the table, but this one is suspect: returns")
    shifted = ReportDraft("", Path("a"), Path("b"), Mode.TENSOR, 1, RowCheck())
    batch = create_batch([pair], Op("Torch.add.0.forward", (), True), [accuracy("shape", "shape")])
    shifted.add(batch)
    assert advise(shifted.build()).text.startswith("No row fails by the rule of the table, but some differ (1).")
    lacking = Report("", Path("a"), Path("b"), Mode.TENSOR, 1, counts=RowCounts(measured=1, matched=1))
    lacking.counts.levels[Level.WARNING] = 7
    assert (
        advise(lacking)
        .text.splitlines()[1]
        .startswith("This applies to the compared rows only. Rows that need to be checked: 7.")
    )


def test_advice_is_on_the_first_row_that_fails() -> None:
    """An error that the table's own rule does not know, such as other shapes, is not what it goes by."""
    finder = SuspectFinder()
    verdicts = [accuracy("shape", "shape"), accuracy(0.5, 0.5), accuracy(0.1, 5.0)]
    names = [f"Torch.add.{number}.forward.output.0" for number in range(len(verdicts))]
    pairs = [pair_of_values(tensor_value(), tensor_value(), Mode.TENSOR, name).pair for name in names]
    finder.add_batch(create_batch(pairs, Op("Torch.add.0.forward"), verdicts), LineNumbers(str, 1))
    found = advise(Report("", Path("a"), Path("b"), Mode.TENSOR, 3, first_failure=finder.first_failure))
    assert (found.line, found.node) == ("2", "Torch.add.1.forward.output.0")


@pytest.mark.parametrize("outcome", Outcome)
def test_all_is_well_only_if_the_verdict_is_that_the_runs_agree(outcome: Outcome) -> None:
    """The verdict takes the place of the sentence, so that the advice and the first line never contradict."""
    report = Report(
        "",
        Path("a"),
        Path("b"),
        Mode.TENSOR,
        1,
        counts=RowCounts(measured=1, matched=1),
        answer=Answer(outcome, "so it is", (), Coverage(9, 1)),
    )
    found = advise(report)
    assert (found.line, found.node) == ("NA", "NA")
    meets = found.text.startswith("All data in comparison result meets")
    assert meets is (outcome is Outcome.AGREE)
    assert meets or found.text == f"{outcome.value}: so it is"
