"""What every view of two runs must do, as a class of tests to subclass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from probe_core.matching.views import Views
from probe_core.model import Kind
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ViewSpec

_PLAN = Plan(Path("target"), Path("golden"), Path("output"), "0")


class ViewConformance:
    """Tests that any view passes; set ``spec``, and two runs that it shows in other words."""

    spec: ClassVar[ViewSpec]
    target: ClassVar[Run]
    golden: ClassVar[Run]

    def views(self) -> Views:
        """Both runs as a fresh viewer shows them."""
        seen = self.spec.make().views(_PLAN, Manager([]), self.target, self.golden)
        assert isinstance(seen, Views), "give it runs that it does not leave as they are"
        return seen

    def test_spec_names_it(self) -> None:
        """A name and a summary to list."""
        assert self.spec.name and self.spec.summary

    def test_a_plan_without_files_is_not_refused(self) -> None:
        """Before the runs are opened, nothing is wrong."""
        self.spec.make().check(_PLAN)

    def test_it_names_a_matcher(self) -> None:
        """Somebody must pair the runs, and the notes are texts."""
        seen = self.views()
        assert isinstance(seen.matcher, str) and seen.matcher
        assert all(isinstance(note, str) for note in seen.notes)

    def test_names_alone_are_other(self) -> None:
        """A view has the records and values of its run, in its order; people see the run itself."""
        seen = self.views()
        for run, view in ((self.target, seen.target), (self.golden, seen.golden)):
            assert view.shown is run.shown
            assert list(view.starts) == list(run.starts) and len(view.signatures) == len(view.names())
            for record, own in zip(view.records(), run.records(), strict=True):
                assert record.index == own.index and view.find(record.key) == record.index
                for slot, other in zip(record.slots, own.slots, strict=True):
                    assert (slot.side, slot.value.kind) == (other.side, other.value.kind)
                    if slot.value.kind is Kind.TENSOR:
                        assert run.tensor(other.value).tobytes() == view.tensor(other.value).tobytes()

    def test_hints_are_texts(self) -> None:
        """Nothing is said of no rows and no suspects."""
        hints = self.views().hints
        assert list(hints.of("", [])) == [] and list(hints.of_suspects([])) == []
        assert all(isinstance(text, str) for text in hints.explaining)
