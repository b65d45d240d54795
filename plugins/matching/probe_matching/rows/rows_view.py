"""The view of ``--rows``: both runs with the rows that they have in common."""

from __future__ import annotations

from probe_core.errors import UserError, format_count
from probe_core.matching.views import Views
from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager
from probe_matching.options import has_name_mappings
from probe_matching.rows.batches import find_batches
from probe_matching.rows.choice import RowChoice, get_row_choice
from probe_matching.rows.places import Places, find_common_places, read_tokens, select_places
from probe_matching.rows.selected_run import SelectedRun
from probe_matching.rows.survey import Survey

EXACT = "exact"


class CommonRowViewer:
    """A view of the rows that two runs have in common."""

    def check(self, plan: Plan) -> None:
        """Refuse options that exclude ``--rows``.

        Raises:
            UserError: The plan maps names.
        """
        if get_row_choice(plan) is not None and has_name_mappings(plan):
            raise UserError("--rows excludes -am, -cm and -lm.", "Leave one of them out.")

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Views | None:
        """Return both runs with their common rows; None if the plan does not ask for rows.

        Raises:
            UserError: The runs contain no tensors or are of two frameworks, or the rows are not known.
        """
        choice = get_row_choice(plan)
        if choice is None:
            return None
        if target.mode is not Mode.TENSOR:
            raise UserError(
                "--rows needs recorded tensors, and these runs hold "
                f"{'checksums' if target.mode is Mode.MD5 else 'statistics'} of whole batches only.",
                'Record both runs with "task": "tensor".',
            )
        if target.header.framework != golden.header.framework:
            raise UserError("--rows compares runs of one framework only.", "Leave it out.")
        places = _find_places(choice, target, golden)
        survey = Survey(target, golden, places)
        runs = (
            SelectedRun(target, places[0], survey.decisions, survey.by_fingerprint[0], is_scaled=True),
            SelectedRun(golden, places[1], survey.decisions, survey.by_fingerprint[1], is_scaled=False),
        )
        return Views(*runs, plan.matcher or EXACT, tuple(_describe_selection(places, survey)), compared=runs)


def _find_places(choice: RowChoice, target: Run, golden: Run) -> tuple[Places, Places]:
    """Return the places to compare."""
    if choice.file:
        files = [read_tokens(run.path.parent / choice.file) for run in (target, golden)]
        return find_common_places(*files)
    return select_places(find_batches(target, golden), (choice.target, choice.golden))


def _describe_selection(places: tuple[Places, Places], survey: Survey) -> list[str]:
    sizes = " and ".join(
        f"{len(side_places.picks)} of {side_places.batch.samples} rows of the {name}"
        for side_places, name in zip(places, ("target", "golden"))
    )
    tokens = sum(len(pick.tokens) for pick in places[0].picks if pick.tokens is not None)
    of_tokens = f", {format_count(tokens, 'token')}" if tokens else ""
    notes = [f"only common rows are compared: {sizes}{of_tokens}"]
    if survey.scale is not None and survey.scale != 1.0:
        notes.append(
            f"gradients of the target are multiplied by {survey.scale:.6g}, because both losses reduce "
            "different numbers of rows"
        )
    return notes
