from __future__ import annotations

from pathlib import Path

from probe_workflow.reports.annotations import MAX_CAUSES, Annotation, AnnotationLevel, list_annotations
from probe_workflow.sentences import summarize
from support.runs.checks import cause, checked, failed

from probe_core.model.answers import Outcome

ROOT = Path("/repo")


def test_the_first_cause_is_an_error_at_its_line_with_the_verdict() -> None:
    first, second = list_annotations(checked(Outcome.DIVERGED, cause(), cause("Torch.add.0.forward")), ROOT)
    assert (first.level, first.file, first.line) == (AnnotationLevel.ERROR, "train.py", 7)
    assert first.message == "DIVERGED: a call differs"
    assert second.level is AnnotationLevel.WARNING
    assert second.message == "Torch.add.0.forward returns values that differ"


def test_a_step_phase_is_annotated_at_its_own_line() -> None:
    phase = cause(
        "optimizer", "", evidence={"step_phase_where": "File /repo/a/b.py, line 12, in step, optimizer.step()"}
    )
    (annotation,) = list_annotations(checked(Outcome.DIVERGED, phase), ROOT)
    assert (annotation.file, annotation.line) == ("a/b.py", 12)


def test_a_cause_without_a_line_has_an_annotation_without_a_place() -> None:
    for where in ("", "no frame", "File /repo/train.py, line x, in f"):
        (annotation,) = list_annotations(checked(Outcome.DIVERGED, cause(where=where)), ROOT)
        assert (annotation.file, annotation.line) == ("", 0)


def test_a_file_outside_of_the_repository_keeps_its_path() -> None:
    (annotation,) = list_annotations(checked(Outcome.DIVERGED, cause(where="File /lib/net.py, line 3, in f, x")), ROOT)
    assert annotation.file == "/lib/net.py"


def test_a_verdict_without_causes_has_one_annotation_without_a_place() -> None:
    for result in (checked(Outcome.DIVERGED), checked(Outcome.CANNOT_TELL), checked(Outcome.NOT_COMPARABLE), failed()):
        (annotation,) = list_annotations(result, ROOT)
        assert annotation == Annotation(AnnotationLevel.ERROR, summarize(result), key="verdict")


def test_an_undecided_verdict_is_annotated_at_its_cause() -> None:
    (annotation,) = list_annotations(checked(Outcome.CANNOT_TELL, cause()), ROOT)
    assert (annotation.level, annotation.line) == (AnnotationLevel.ERROR, 7)


def test_calls_made_differently_are_warnings_if_the_runs_agree() -> None:
    assert list_annotations(checked(Outcome.AGREE), ROOT) == []
    (annotation,) = list_annotations(checked(Outcome.AGREE, cause()), ROOT)
    assert (annotation.level, annotation.line) == (AnnotationLevel.WARNING, 7)
    assert annotation.message == "Functional.linear.0.forward returns values that differ"


def test_the_number_of_annotations_is_limited() -> None:
    assert len(list_annotations(checked(Outcome.DIVERGED, *[cause()] * 30), ROOT)) == MAX_CAUSES
