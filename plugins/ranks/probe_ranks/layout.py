"""Search for the record files of two runs, and their pairing by step and rank (docs/pairing.md#ranks).

A path may be a ``dump.json`` or ``debug.json``, a rank directory, a step directory, or the root of a dump
with one or several steps, possibly below ``graph`` and ``pynative``. A step may hold stages, directories such as
``actor`` with ranks of their own. Stages pair by their names, steps and ranks by their numbers.
If two runs have equally many ranks and no number in common, their ranks pair in order. A single
``rank`` or ``proc123`` has no number and pairs with the only rank of the other side, or with its rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from probe_core.errors import UserError, format_list
from probe_core.store.files import (
    CONDITIONS_FILE,
    CONSTRUCT_FILE,
    DEFAULT_RECORD_FILES,
    ERROR_FILE,
    STACK_FILE,
    TENSOR_DIRECTORY,
)
from probe_core.store.layout import Pairing, RecordFiles, RunPair
from probe_ranks.specs import PAIR_RANKS

MODE_DIRECTORIES = ("graph", "pynative")
_FILES_BEFORE_RECORDS = (TENSOR_DIRECTORY, STACK_FILE, CONSTRUCT_FILE, CONDITIONS_FILE, ERROR_FILE)
_STEP = re.compile(r"step(\d{1,9})$")
_RANK = re.compile(r"(?:rank(\d{0,9})|proc(\d{1,9}))$")


@dataclass(frozen=True, slots=True)
class _RankFiles:
    """A rank of one run; ``given`` is True if the user named it and not a directory above it."""

    name: str
    number: int | None
    files: tuple[Path, ...]
    is_named: bool = False


_Steps = dict[str, Path]
"""The directories of steps and stages by their names below a path, such as ``step0`` and ``step0/actor``.

The name is ``""`` for a path that is itself a step or less.
"""


def parse_rank_number(name: str) -> int | None:
    """Return the number in a rank directory's name; None for a bare ``rank`` and for a process."""
    match = _RANK.match(name)
    return int(match[1]) if match and match[1] else None


def pair_runs(
    target: Path,
    golden: Path,
    steps: Collection[int] = (),
    ranks: Collection[int] = (),
    formats: RecordFiles = (DEFAULT_RECORD_FILES,),
    pair_ranks: str = PAIR_RANKS[0],
    step_offset: int = 0,
) -> Pairing:
    """Pair the record files of two runs.

    Args:
        target: The run under test.
        golden: The reference run.
        steps: The steps to compare; empty for all that both have.
        ranks: The ranks of the target to compare; empty for all that both have.
        formats: The names of record files.
        pair_ranks: A choice of ``PAIR_RANKS``.
        step_offset: The number to add to a step of the target for the step of the golden that it pairs with.

    Raises:
        UserError: A path cannot be read or holds no run, or both runs have no step or rank in common.
    """
    if pair_ranks not in PAIR_RANKS:
        message = f"invalid value for pair_ranks: expected auto, number or order, got {pair_ranks!r:.40}."
        raise UserError(message, "Choose one of these:", PAIR_RANKS)
    pairing = Pairing(formats=formats)
    golden_steps = [step + step_offset for step in steps]
    sides = _find_selected_stages(target, steps, formats), _find_selected_stages(golden, golden_steps, formats)
    common = _find_common_steps(sides, (target, golden), pairing, step_offset)
    refused: list[UserError] = []
    for target_step, golden_step in common:
        name = target_step or golden_step
        part = name if len(common) > 1 or not _STEP.match(name.rpartition("/")[2]) else ""
        try:
            step_paths = sides[0][target_step], sides[1][golden_step]
            _pair_ranks(*step_paths, part, frozenset(ranks), pairing, pair_ranks)
        except UserError as error:
            refused.append(error)
    if refused and not pairing.pairs:
        raise refused[0]
    _note_refused_steps(refused, pairing)
    if not pairing.pairs:
        problems = [*pairing.damaged, *pairing.missing]
        others = "Give the directories of two ranks to compare ranks of different numbers."
        fix = others if problems else "Check both paths."
        raise UserError(f"{target} and {golden} have no rank in common.", fix, problems)
    return pairing


def _note_refused_steps(refused: Sequence[UserError], pairing: Pairing) -> None:
    """Add the steps whose ranks cannot be paired to those that are missing or damaged."""
    for error in refused:
        if isinstance(error, _UnrecordedStepError):
            pairing.missing.append(f"{error.what} Its recording ended before the first record; it is left out.")
        else:
            pairing.damaged.append(error.what)


def find_ranks(
    path: Path, steps: Collection[int] = (), formats: RecordFiles = (DEFAULT_RECORD_FILES,)
) -> dict[str, dict[int, Path]]:
    """Return the record file of each rank of one run, by the name of the step and the rank's number.

    Raises:
        UserError: The path cannot be read or holds no run, or two ranks have the same number.
    """
    files: dict[str, dict[int, Path]] = {}
    for name, step in _find_selected_stages(path, steps, formats).items():
        pairing = Pairing(formats=formats)
        ranks = _index_by_number(_list_ranks(step, (), pairing), step, (), pairing)
        if pairing.damaged:
            raise UserError(pairing.damaged[0], "Correct that directory or move it away, and check again.")
        records = {number: _find_records(rank, formats) for number, rank in ranks.items()}
        files[name] = {number: file for number, file in records.items() if file is not None}
    return files


def _find_records(rank: _RankFiles, formats: RecordFiles) -> Path | None:
    return next((file for file in rank.files if _find_file_kind(file, formats) == 0), None)


# -- steps -----------------------------------------------------------------------------------------


def _find_selected_stages(path: Path, steps: Collection[int], formats: RecordFiles) -> _Steps:
    """Return the directories of the stages of a run, in these steps only if any are given."""
    return _find_stages(_select_steps(_find_steps(path, formats), path, steps), formats)


def _find_steps(path: Path, formats: RecordFiles) -> _Steps:
    """Return the steps below ``path``; under ``""`` the path itself if it is a step, a rank or a file."""
    fix = "Give a dump.json, or the directory of a run."
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        problem = getattr(error, "strerror", None) or "no such path"
        if isinstance(error, FileNotFoundError):
            problem = "it does not exist"
        raise UserError(f'"{path}" cannot be read: {problem}.', fix) from None
    if not path.is_file() and not path.is_dir():
        raise UserError(f'"{path}" is neither a file nor a directory.', fix)
    if path.is_file():
        if not path.name.endswith(_flatten_names(formats)):
            raise UserError(
                f"{path} is not a record file.",
                "Give a file whose name ends in one of these, or its directory:",
                _flatten_names(formats),
            )
        return {"": path}
    names = _list_names(path)
    if len(names) == 1 and re.search(r"_v\d[\w.]*$", names[0]):
        return _find_steps(path / names[0], formats)
    if not any(name in names for name in _flatten_names(formats)):
        steps = {name: path / name for name in _sort_by_number(names, _STEP) if (path / name).is_dir()}
        for part in MODE_DIRECTORIES:
            if part in names and (path / part).is_dir():
                inner = [path / part / name for name in _sort_by_number(_list_names(path / part), _STEP)]
                steps |= {f"{part}/{step.name}": step for step in inner if step.is_dir()}
        if steps:
            return steps
        is_step = _sort_by_number(names, _RANK) or _list_stages(path, names)
        if not is_step and not _find_record_files(path, names, formats):
            raise _create_no_run_error(path, formats)
    return {"": path}


def _find_stages(steps: _Steps, formats: RecordFiles) -> _Steps:
    """Return the steps and their stages; a step whose ranks are all in stages is left out."""
    places: _Steps = {}
    for name, step in steps.items():
        try:
            names = _list_names(step) if step.is_dir() else []
        except UserError:  # reported when its ranks are listed
            names = []
        is_rank = any(file.endswith(_flatten_names(formats)) for file in names)
        stages = [] if is_rank else _list_stages(step, names)
        if not stages or _sort_by_number(names, _RANK):
            places[name] = step
        places |= {f"{name}/{stage}".lstrip("/"): step / stage for stage in stages}
    return places


def _list_stages(step: Path, names: Sequence[str]) -> list[str]:
    """Return the directories of a step that hold ranks and are none themselves, sorted."""
    if not _STEP.match(step.name):
        return []
    directories = [name for name in names if not _RANK.match(name) and (step / name).is_dir()]
    return sorted(name for name in directories if _sort_by_number(_list_names(step / name), _RANK))


def _create_no_run_error(path: Path, formats: RecordFiles, suffix: str = "") -> UserError:
    return UserError(
        f"There is no {' or '.join(_flatten_names(formats))} in {path}{suffix}.",
        "Give a dump.json, or a rank, step or dump directory that holds one.",
    )


def _select_steps(steps: _Steps, path: Path, wanted: Collection[int]) -> _Steps:
    if not wanted:
        return steps
    if "" in steps:
        raise UserError(
            f"{path} is not the root of a dump, so no step of it can be chosen.",
            "Leave --step out, or give the directory that holds the step directories.",
        )
    chosen = {name: step for name, step in steps.items() if _parse_step_number(name) in wanted}
    lacking = sorted(set(wanted) - {_parse_step_number(name) for name in chosen})
    if lacking:
        raise UserError(f"{path} has no step {format_list(lacking)}.", "Choose among its steps:", list(steps))
    return chosen


def _parse_step_number(name: str) -> int:
    return int(name.rpartition("step")[2])


def _shift_step(name: str, offset: int) -> str:
    """Return the name of a step or stage whose step has a number that is larger by an offset."""
    parts = (f"step{int(part[4:]) + offset}" if _STEP.match(part) else part for part in name.split("/"))
    return "/".join(parts)


def _find_common_steps(
    sides: tuple[_Steps, _Steps], paths: tuple[Path, Path], pairing: Pairing, offset: int
) -> list[tuple[str, str]]:
    """Return the steps and stages to compare: those of equal names after the offset, or two that the user named."""
    target_steps, golden_steps = sides
    if ("" in target_steps) != ("" in golden_steps):
        for steps, path in zip(sides, paths):
            if len(steps) > 1:
                kind = "stages" if any(not _STEP.match(step.name) for step in steps.values()) else "steps"
                raise UserError(
                    f"{path} holds several {kind}, and the other path is a single one.",
                    "Give one of them, or choose a step with --step:",
                    [str(step) for step in steps.values()],
                )
        return [(next(iter(target_steps)), next(iter(golden_steps)))]
    partners = {name: _shift_step(name, offset) for name in target_steps}
    common = [(name, partner) for name, partner in partners.items() if partner in golden_steps]
    if not common:
        raise UserError(
            f"{paths[0]} holds {', '.join(target_steps)} and {paths[1]} holds {', '.join(golden_steps)}.",
            "They share no step or stage. Give the directories of two steps or stages to compare different ones.",
        )
    for side_name, side_steps, paired in zip(("target", "golden"), sides, zip(*common)):
        unpaired = [name for name in side_steps if name not in paired]
        if unpaired:
            pairing.missing.append(f"Only the {side_name} has {format_list(unpaired)}.")
    return common


# -- ranks -----------------------------------------------------------------------------------------


def match_ranks(targets: Collection[int], goldens: Collection[int], pair_ranks: str = PAIR_RANKS[0]) -> dict[int, int]:
    """Return the golden rank of each target rank that has one (docs/pairing.md#ranks).

    Args:
        targets: The numbers of the target's ranks.
        goldens: The numbers of the golden's ranks.
        pair_ranks: A choice of ``PAIR_RANKS``.

    Raises:
        UserError: The ranks must pair in order, and the runs have different numbers of them.
    """
    common = set(targets) & set(goldens)
    is_even = len(set(targets)) == len(set(goldens))
    if pair_ranks == "order" and not is_even:
        raise UserError(
            f"The target has {len(set(targets))} ranks and the golden {len(set(goldens))}, "
            "so they cannot be paired in order.",
            "Leave out --pair-ranks order, or give the directories of two ranks.",
        )
    if pair_ranks == "order" or (pair_ranks == "auto" and is_even and not common):
        return dict(zip(sorted(set(targets)), sorted(set(goldens))))
    return {number: number for number in sorted(common)}


def _find_rank_numbers(path: Path, formats: RecordFiles) -> list[int]:
    """Return the numbers of the ranks in a step, or of a path that is one rank."""
    names = [path.parent.name] if path.is_file() else _list_names(path)
    if path.is_file() or _find_record_files(path, names, formats):
        names = [path.parent.name if path.is_file() else path.name]
    else:
        names = [name for name in _sort_by_number(names, _RANK) if (path / name).is_dir()]
    return [parse_rank_number(name) or 0 for name in names]


class _RankPairs(NamedTuple):
    """The ranks of two steps, by the numbers of the target's ranks.

    Attributes:
        files: The record files of each pair.
        golden_numbers: The number of the golden's rank of each pair.
        unpaired: The ranks of each side without a partner.
        is_single: True if each step is a single rank; the numbers of the ranks may differ.
    """

    files: Mapping[int, tuple[_RankFiles, _RankFiles]]
    golden_numbers: Mapping[int, int]
    unpaired: tuple[Sequence[int], Sequence[int]]
    is_single: bool


def _pair_ranks(
    target_step: Path,
    golden_step: Path,
    part: str,
    wanted: frozenset[int],
    pairing: Pairing,
    pair_ranks: str = PAIR_RANKS[0],
) -> None:
    """Add the record files of two steps, or of two other paths, to the pairing."""
    pairs = _find_rank_pairs(target_step, golden_step, wanted, pairing, pair_ranks)
    lacking = sorted(wanted - pairs.files.keys())
    if lacking:
        everything = Pairing(formats=pairing.formats)
        _pair_ranks(target_step, golden_step, part, frozenset(), everything, pair_ranks)
        raise UserError(
            f"Not both of {target_step} and {golden_step} have rank {format_list(lacking)}.",
            "Choose ranks with --rank that both have:",
            [str(number) for number in dict.fromkeys(pair.rank for pair in everything.pairs)],
        )
    where = f" in {part}" if part else ""
    for side_name, numbers in zip(("target", "golden"), pairs.unpaired):
        if numbers and not wanted:
            pairing.missing.append(f"Only the {side_name} has rank {format_list(numbers)}{where}.")
    renumbered = [f"{target} with {golden}" for target, golden in pairs.golden_numbers.items() if target != golden]
    if renumbered:
        pairing.notes.append(f"The ranks are paired in order{where}: {format_list(renumbered)}.")
    for number, (target, golden) in pairs.files.items():
        if not wanted or number in wanted:
            golden_number = pairs.golden_numbers[number]
            golden_suffix = f"-rank{golden_number}" if golden_number != number else ""
            label = "" if pairs.is_single else f"rank{number}{golden_suffix}"
            files = _pair_files(target, golden, f"rank {number}{where}", pairing)
            for index, file_pair in enumerate(files):
                pairing.pairs.append(RunPair(*file_pair, part, label, number, golden_number, index > 0))


def _find_rank_pairs(
    target_step: Path, golden_step: Path, wanted: frozenset[int], pairing: Pairing, pair_ranks: str
) -> _RankPairs:
    """Return the pairs of ranks of two steps; add directories without records to the pairing."""
    formats = pairing.formats
    matches = match_ranks(
        _find_rank_numbers(target_step, formats), _find_rank_numbers(golden_step, formats), pair_ranks
    )
    wanted_goldens = frozenset(matches.get(number, number) for number in wanted)
    targets = _list_ranks(target_step, wanted, pairing)
    goldens = _list_ranks(golden_step, wanted_goldens, pairing)
    is_single = len(targets) == len(goldens) == 1 and not (wanted and _has_several_ranks(target_step, golden_step))
    if is_single and any(rank.number is None or rank.is_named for rank in (*targets, *goldens)):
        number = next((rank.number for rank in (*targets, *goldens) if rank.number is not None), 0)
        return _RankPairs({number: (targets[0], goldens[0])}, {number: number}, ((), ()), is_single)
    first = _index_by_number(targets, target_step, goldens, pairing)
    second = _index_by_number(goldens, golden_step, targets, pairing)
    matches = {target: golden for target, golden in matches.items() if target in first and golden in second}
    files = {target: (first[target], second[golden]) for target, golden in matches.items()}
    unpaired = sorted(first.keys() - files.keys()), sorted(second.keys() - set(matches.values()))
    return _RankPairs(files, matches, unpaired, is_single)


def _has_several_ranks(*paths: Path) -> bool:
    """Return True if a step holds more than one rank."""
    return any(len(_sort_by_number(_list_names(path), _RANK)) > 1 for path in paths if not path.is_file())


def _list_ranks(path: Path, wanted: Collection[int], pairing: Pairing) -> list[_RankFiles]:
    """Return the wanted ranks in a step directory; the only one for a rank directory or a file."""
    if path.is_file():
        return [_RankFiles(path.parent.name, parse_rank_number(path.parent.name), (path,), is_named=True)]
    names = _list_names(path)
    record_files = _find_record_files(path, names, pairing.formats)
    if record_files:
        return [_RankFiles(path.name, parse_rank_number(path.name), record_files, is_named=True)]
    directories = [name for name in _sort_by_number(names, _RANK) if (path / name).is_dir()]
    ranks: list[_RankFiles] = []
    unreadable: list[UserError] = []
    damaged_count, is_begun = len(pairing.damaged), any(map(_STEP.match, path.parts[-2:]))
    for name in directories:
        if wanted and parse_rank_number(name) not in (None, *wanted):
            continue
        try:
            inside = _list_names(path / name)
        except UserError as error:
            pairing.damaged.append(error.what)
            unreadable.append(error)
            is_begun = False
            continue
        files = _find_record_files(path / name, inside, pairing.formats)
        if files:
            ranks.append(_RankFiles(name, parse_rank_number(name), files))
        else:
            is_begun = is_begun and _is_unrecorded(inside)
            pairing.damaged.append(f"There is no {' or '.join(_flatten_names(pairing.formats))} in {path / name}.")
    if not ranks and not (directories and wanted):
        nothing = _create_no_run_error(path, pairing.formats, " or its ranks" if directories else "")
        problem = unreadable[0] if unreadable else nothing
        if is_begun and directories:  # a killed recording is no damage
            del pairing.damaged[damaged_count:]
            raise _UnrecordedStepError(problem.what, problem.fix)
        raise problem
    return ranks


class _UnrecordedStepError(UserError):
    """A step whose recording started, but without records of any rank."""


def _is_unrecorded(names: Sequence[str]) -> bool:
    """Return True if a rank directory holds only files that are written before the first record."""
    return all(name in _FILES_BEFORE_RECORDS or name.endswith(".part") for name in names)


def _index_by_number(
    ranks: Sequence[_RankFiles], path: Path, others: Sequence[_RankFiles], pairing: Pairing
) -> dict[int, _RankFiles]:
    """Return the ranks by number; the only one without a number is rank 0, unless the user named it."""
    if others and len(ranks) == 1 and ranks[0].is_named and ranks[0].number is None:
        raise UserError(
            f"{path} is one rank, and the other run has several.",
            "Give one of them, or choose it with --rank:",
            [str(file) for rank in others for file in rank.files],
        )
    by_number: dict[int, _RankFiles] = {}
    doubled: dict[int, str] = {}
    for rank in ranks:
        number = rank.number or 0
        if number in by_number:
            names = f"{by_number[number].name} and {rank.name}"
            doubled[number] = f"{path} holds two ranks of number {number}: {names}."
        by_number[number] = rank
    pairing.damaged += doubled.values()  # reported and not compared
    return {number: rank for number, rank in by_number.items() if number not in doubled}


def _pair_files(target: _RankFiles, golden: _RankFiles, subject: str, pairing: Pairing) -> list[tuple[Path, Path]]:
    """Pair the record files of two ranks by kind; two files that the user named are always paired."""
    if target.is_named and golden.is_named and len(target.files) == len(golden.files) == 1:
        return [(target.files[0], golden.files[0])]
    targets, goldens = (
        {_find_file_kind(file, pairing.formats): file for file in rank.files} for rank in (target, golden)
    )
    pairs = [(file, goldens[kind]) for kind, file in targets.items() if kind in goldens]
    if not pairs:
        pairing.damaged.append(
            f"The target holds {target.files[0].name} of {subject}, and the golden {golden.files[0].name}; "
            "compare dump.json with dump.json, or debug.json with debug.json."
        )
    for side_name, side_files, partner_files in (("target", targets, goldens), ("golden", goldens, targets)):
        unpaired = [file.name for kind, file in side_files.items() if kind not in partner_files]
        if pairs and unpaired:
            pairing.missing.append(f"Only the {side_name} has {', '.join(unpaired)} of {subject}.")
    return pairs


def _find_file_kind(path: Path, formats: RecordFiles) -> int:
    """Return the kind of a record file: 0 for calls, 1 for saved variables."""
    return next(kind for names in formats for kind, name in enumerate(names) if path.name.endswith(name))


def _flatten_names(formats: RecordFiles) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in formats for name in names))


def _find_record_files(directory: Path, names: Sequence[str], formats: RecordFiles) -> tuple[Path, ...]:
    """Return the record files among ``names``, one of each kind, earlier formats first, suffixes last."""
    files: dict[int, Path] = {}
    for format in formats:
        for kind, name in enumerate(format):
            if name in names:
                files.setdefault(kind, directory / name)
    suffixes = tuple(name for name in _flatten_names(formats) if name[0] == "." and not _sort_by_number(names, _RANK))
    matches = [] if files else sorted(name for name in names if name.endswith(suffixes))
    if len(matches) > 1:
        raise UserError(f"{directory} holds several record files.", "Give one of them:", matches)
    return tuple(files[kind] for kind in sorted(files)) or tuple(directory / name for name in matches)


# -- directories -----------------------------------------------------------------------------------


def _list_names(path: Path) -> list[str]:
    """Return the names in a directory, in no order."""
    try:
        return [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from None


def _sort_by_number(names: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the names that match the pattern, by their numbers."""
    numbered = ((pattern.match(name), name) for name in names)
    matching_names = [(int(next(filter(None, match.groups()), -1)), name) for match, name in numbered if match]
    return [name for _, name in sorted(matching_names)]
