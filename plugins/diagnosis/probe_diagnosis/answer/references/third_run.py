"""A third run next to target and golden: its records, and its comparison with either of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from probe_ranks.api import PAIR_RANKS, pair_runs

from probe_core.errors import UserError
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Comparer
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.references.further_passes import ALIGN, FUZZY, collect_facts, has_row_mapping, simplify_plan
from probe_diagnosis.answer.references.same_files import is_same_file
from probe_diagnosis.asking import NAME, create_conflict_error
from probe_diagnosis.timeline.rank_facts import RankFacts


@dataclass(frozen=True, slots=True)
class Refusals:
    """Reasons to refuse the golden or the target itself as a third run, as ends of sentences."""

    golden: str
    target: str
    fix: str


def check_third_run(plan: Plan, path: Path, option: str, fix: str) -> None:
    """Check that a plan may have a third run.

    Raises:
        UserError: The path does not exist, or ``-da`` is set as well.
    """
    if NAME in plan.answers:
        raise create_conflict_error(option)
    if not path.exists():
        raise UserError(f'"{path}" does not exist.', fix)


def find_record(path: Path, plan: Plan, pair: RunPair, refusals: Refusals) -> Path:
    """Return the record file of a third run that belongs to the golden of a pair.

    Args:
        path: The third run.
        plan: The plan of the comparison.
        pair: The step and the rank.
        refusals: The reasons to refuse the golden or the target itself.

    Raises:
        UserError: There is no such record, or it is that of the golden or the target.
    """
    formats = ((pair.golden.name,),)
    options = plan.options
    golden_steps = [step + options.get("step_offset", 0) for step in options.get("steps", ())]
    pair_ranks = options.get("pair_ranks", PAIR_RANKS[0])
    for candidate in pair_runs(path, plan.golden, golden_steps, (), formats, pair_ranks).pairs:
        if candidate.golden == pair.golden:
            for run, effect in ((pair.golden, refusals.golden), (pair.target, refusals.target)):
                if is_same_file(candidate.target, run):
                    raise UserError(f"{path} is the {effect}.", refusals.fix)
            return candidate.target
    raise UserError(f"{path} has no record that belongs to {pair.golden}.", "Give a run of the same ranks.")


def drop_mapping(plan: Plan) -> Plan:
    """Return the plan of a comparison of two runs of the golden's program, whose names are the same."""
    matcher = None if plan.matcher == FUZZY else plan.matcher
    mappings = dict.fromkeys(("mapping", "across", "api_mapping", "cell_mapping", "layer_mapping"))
    return replace(simplify_plan(plan).with_options(**mappings), matcher=matcher, policies=())


def collect_aligned_facts(compare: Comparer, plan: Plan, target: Path, golden: Path, rank: int) -> RankFacts:
    """Return the facts about a further comparison, whose calls are aligned if their numbers do not line up.

    Raises:
        UserError: The runs cannot be compared.
    """
    facts = collect_facts(compare(plan, target, golden, rank))
    if facts.is_shifted and not has_row_mapping(plan):
        facts = collect_facts(compare(replace(plan, matcher=ALIGN), target, golden, rank))
    return facts
