"""Matching by a mapping file with lines ``target row name: golden row name`` (``-dm``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probe_core.errors import UserError, find_nearest_names, format_count
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file
from probe_core.matching.exact import ExactMatcher
from probe_core.matching.matching import Matching
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.store.names import canonicalize
from probe_matching.fuzzy import FuzzyMatcher
from probe_matching.options import NameMappings

MAX_LISTED_NAMES = 5


FALLBACK_MATCHERS: dict[str, type[ExactMatcher | FuzzyMatcher]] = {"exact": ExactMatcher, "fuzzy": FuzzyMatcher}


class MappingMatcher:
    """Matcher that pairs the rows named in a file, and all other rows by another matcher.

    Several target rows may be paired with the same golden row (docs/pairing.md#data-mapping).
    """

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """Return the matching by the plan's mapping; ``plan.matcher`` pairs the rest, exact or fuzzy."""
        mapping = NameMappings.from_plan(plan).mapping
        if mapping is None:
            raise UserError('The matcher "mapping" needs a mapping file.', "Give it with -dm, and leave --match out.")
        fallback = plan.matcher or "exact"
        if fallback not in FALLBACK_MATCHERS:
            raise UserError(
                f'A mapping file cannot be used with the matcher "{fallback}".',
                "Choose one of these with --match, or leave -dm out:",
                list(FALLBACK_MATCHERS),
            )
        source = str(mapping) if isinstance(mapping, Path) else "The data mapping"
        names = read_mapping(mapping) if isinstance(mapping, Path) else mapping
        golden_names = set(names.values())
        golden_numbers = _find_slot_numbers(golden.shown, golden_names)
        target_numbers = _find_slot_numbers(target.shown, set(names))
        _check_names(source, "target", set(names), target_numbers, target.shown)
        _check_names(source, "golden", golden_names, golden_numbers, golden.shown)
        matching = FALLBACK_MATCHERS[fallback]().match(target, golden, plan)
        for target_name, golden_name in names.items():
            matching.partners[target_numbers[target_name]] = golden_numbers[golden_name]
        matching.mapped = frozenset(target_numbers.values())
        return matching


def _check_names(source: str, side: str, names: set[str], slot_numbers: dict[str, int], run: Run) -> None:
    unknown = sorted(names - set(slot_numbers))
    if not unknown:
        return
    slot_names = [slot.name for record in run.records() for slot in record.slots]
    lines = []
    for name in unknown[:MAX_LISTED_NAMES]:
        close = find_nearest_names(name, slot_names, 1)
        lines.append(f'"{name}"' + (f"  (nearest: {close[0]})" if close else ""))
    raise UserError(
        f"{source} names {format_count(len(unknown), 'row')} that the {side} run does not have.",
        "Use the names in the table's NPU Name and Bench Name columns, such as "
        "Functional.relu.0.forward.input.0. Unknown:",
        lines,
    )


def _find_slot_numbers(run: Run, names: set[str]) -> dict[str, int]:
    """Return the slot number of each wanted row, by its name as shown or as built from its place."""
    shown: dict[str, int] = {}
    built: dict[str, int] = {}
    for record, start in zip(run.records(), run.starts):
        for position, slot in enumerate(record.slots):
            if slot.name in names:
                shown.setdefault(slot.name, start + position)
            name = f"{canonicalize(record.key)}.{slot.side.value}.{slot.path}"
            if name in names:
                built.setdefault(name, start + position)
    return {**built, **shown}


def read_mapping(path: Path) -> dict[str, str]:
    """Return the names in a mapping file; an empty file maps nothing.

    Raises:
        UserError: The file cannot be read, or is not a yaml mapping of names to names.
    """
    import yaml

    try:
        value: Any = parse_yaml(read_regular_file(path).decode("utf-8"))
    except OSError as error:
        raise UserError(
            f"The mapping file {path} cannot be read: {error.strerror or error}.",
            "Check the path given with -dm.",
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        where = describe_yaml_error(error)
        if isinstance(error, UnicodeDecodeError):
            where = ": it is not UTF-8"
        elif isinstance(error, RecursionError):
            where = ": it is nested too deeply"
        raise UserError(
            f"The mapping file {path} is not valid yaml{where}.",
            'Write a line "target row name: golden row name" for each row.',
        ) from None
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(
        isinstance(target, str) and isinstance(golden, str) for target, golden in value.items()
    ):
        raise UserError(
            f"The mapping file {path} does not map names to names.",
            'Write a line "target row name: golden row name" for each row.',
        )
    return value
