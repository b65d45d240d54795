"""The verdict on several comparisons."""

from __future__ import annotations

from probe_diagnosis.answer.verdict.all_ranks import merge_answers

from probe_core.model.answers import Answer, Coverage, Note, NoteKind, Outcome


def agree(*notes: Note) -> Answer:
    return Answer(Outcome.AGREE, "", (), Coverage(1, 1), (), (), notes)


def test_merged_notes_name_the_first_comparison_of_each_call() -> None:
    first, second = (Note(NoteKind.NO_EFFECT, f"Torch.a.0.forward is off by {n}", "Torch.a.0.forward") for n in (1, 2))
    general = Note(NoteKind.HARMLESS, "a note on the runs")
    merged = merge_answers({"step0": agree(general), "step1": agree(first), "step2": agree(second, general)}, [], 0)
    assert [note.text for note in merged.notes] == ["a note on the runs", "in step1, Torch.a.0.forward is off by 1"]
