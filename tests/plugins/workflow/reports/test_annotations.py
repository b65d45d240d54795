from __future__ import annotations

from pathlib import Path

from probe_workflow.reports.annotations import MAX_CAUSES, Annotation, AnnotationLevel, list_annotations
from support.runs.checks import cause, checked, failed

from probe_core.model.answers import Outcome

ROOT = Path("/work")


def test_the_first_cause_is_an_error_at_its_line_with_the_verdict() -> None:
    first, second = list_annotations(checked(Outcome.DIVERGED, cause(), cause("Torch.add.0.forward")), ROOT)
    assert (first.level, first.file, first.line) == (AnnotationLevel.ERROR, "train.py", 7)
    assert first.message == "DIVERGED: a call differs"
    assert second.level is AnnotationLevel.WARNING
    assert second.message == "Torch.add.0.forward returns values that differ"


def test_a_step_phase_is_annotated_at_its_own_line() -> None:
    phase = cause("optimizer", "", evidence={"ladder_where": "File /work/a/b.py, line 12, in step, optimizer.step()"})
    (annotation,) = list_annotations(checked(Outcome.DIVERGED, phase), ROOT)
    assert (annotation.file, annotation.line) == ("a/b.py", 12)


def test_a_cause_without_a_line_has_an_annotation_without_a_place() -> None:
    for where in ("", "no frame", "File /work/train.py, line x, in f"):
        (annotation,) = list_annotations(checked(Outcome.DIVERGED, cause(where=where)), ROOT)
        assert (annotation.file, annotation.line) == ("", 0)


def test_a_file_outside_of_the_repository_keeps_its_path() -> None:
    (annotation,) = list_annotations(checked(Outcome.DIVERGED, cause(where="File /lib/net.py, line 3, in f, x")), ROOT)
    assert annotation.file == "/lib/net.py"


def test_a_verdict_of_divergence_without_causes_is_annotated() -> None:
    (annotation,) = list_annotations(checked(Outcome.DIVERGED), ROOT)
    assert annotation == Annotation(AnnotationLevel.ERROR, "DIVERGED: a call differs", key="verdict")


def test_runs_that_agree_have_no_annotations_and_everything_else_has_one() -> None:
    assert list_annotations(checked(Outcome.AGREE, cause()), ROOT) == []
    for result in (checked(Outcome.CANNOT_TELL, cause()), checked(Outcome.NOT_COMPARABLE), failed()):
        (annotation,) = list_annotations(result, ROOT)
        assert annotation.level is AnnotationLevel.ERROR and annotation.file == ""


def test_the_number_of_annotations_is_limited() -> None:
    assert len(list_annotations(checked(Outcome.DIVERGED, *[cause()] * 30), ROOT)) == MAX_CAUSES
