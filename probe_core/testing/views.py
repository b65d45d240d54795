"""Conformance tests for views, as a class to subclass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from probe_core.matching.views import Views
from probe_core.model import Kind
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.model.single import create_batch
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ViewSpec

_TRIAL_PLAN = Plan(Path("target"), Path("golden"), Path("output"), "0")


class ViewConformance:
    """Tests for any view; set ``spec``, and two runs that it changes."""

    spec: ClassVar[ViewSpec]
    target: ClassVar[Run]
    golden: ClassVar[Run]

    def views(self) -> Views:
        """Return both runs as a new viewer shows them."""
        views = self.spec.make().views(_TRIAL_PLAN, Manager([]), self.target, self.golden)
        assert isinstance(views, Views), "target and golden must be runs that the view changes"
        return views

    def test_spec_has_name_and_summary(self) -> None:
        """Check that the spec has a name and a summary."""
        assert self.spec.name and self.spec.summary

    def test_a_plan_without_files_is_not_refused(self) -> None:
        """Check that a plan without mapping files is accepted."""
        self.spec.make().check(_TRIAL_PLAN)

    def test_it_names_a_matcher(self) -> None:
        """Check that the view names a matcher, and that its notes are texts."""
        views = self.views()
        assert isinstance(views.matcher, str) and views.matcher
        assert all(isinstance(note, str) for note in views.notes)

    def test_only_names_change(self) -> None:
        """Check that a view changes names only, and shows people the original run."""
        views = self.views()
        for run, view in ((self.target, views.target), (self.golden, views.golden)):
            assert view.shown is run.shown
            assert list(view.starts) == list(run.starts) and len(view.signatures) == len(view.names())
            for record, original_record in zip(view.records(), run.records(), strict=True):
                assert record.index == original_record.index and view.find(record.key) == record.index
                for slot, original_slot in zip(record.slots, original_record.slots, strict=True):
                    assert (slot.side, slot.value.kind) == (original_slot.side, original_slot.value.kind)
                    if slot.value.kind is Kind.TENSOR:
                        assert run.tensor(original_slot.value).tobytes() == view.tensor(original_slot.value).tobytes()

    def test_hints_are_texts(self) -> None:
        """Check that an empty batch without suspects has no hints."""
        hints = self.views().hints
        assert list(hints.of(create_batch([]))) == [] and list(hints.of_suspects([])) == []
        assert all(isinstance(text, str) for text in hints.explaining)
