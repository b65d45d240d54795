"""Finding the runs that two paths mean, and which of them are compared with each other.

A path may be a ``dump.json`` or ``debug.json``, a rank directory, a step directory, or the root of a dump
with one step or several, below ``graph`` and ``pynative`` where a framework made both. Steps pair by their
number and ranks by theirs, never by position. A single ``rank`` or ``proc123`` carries no number and pairs
with whatever the other side has one of, or with its rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.errors import UserError
from probe_core.store.files import CONSTRUCT_FILE, ERROR_FILE, FILES, STACK_FILE, TENSOR_DIRECTORY

RecordFiles = tuple[tuple[str, ...], ...]
"""The names of record files, a tuple for each format: first that of calls, then that of saved variables."""
PARTS = ("graph", "pynative")
SINGLE = ""
"""The label of a comparison that is the only one."""
_BEFORE_RECORDS = (TENSOR_DIRECTORY, STACK_FILE, CONSTRUCT_FILE, ERROR_FILE)
_STEP = re.compile(r"step(\d{1,9})$")
_RANK = re.compile(r"(?:rank(\d{0,9})|proc(\d{1,9}))$")


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two record files that are compared, and what their comparison is called.

    Attributes:
        target: The record file of the run under test.
        golden: That of the reference run.
        part: The directory below the output that the results go to, such as ``step0``; empty for the
            output itself.
        label: ``rank{n}`` where a run has several ranks, else empty.
        rank: The number of the rank; 0 where none is known.
        one_of_two: True for a debug.json beside a dump.json that is compared as well.
    """

    target: Path
    golden: Path
    part: str = ""
    label: str = SINGLE
    rank: int = 0
    one_of_two: bool = False

    @property
    def name(self) -> str:
        """What a person knows the comparison by; empty for a single one."""
        file = self.target.name if self.one_of_two else ""
        return "/".join(part for part in (self.part, self.label, file) if part)


@dataclass(slots=True)
class Pairing:
    """What is compared with what, and what is left over.

    Attributes:
        pairs: The comparisons, by step and rank.
        missing: What only one side has, in sentences.
        damaged: Directories that should hold a run and do not, in sentences.
        formats: The names of record files.
    """

    pairs: list[RunPair] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    formats: RecordFiles = (FILES,)


@dataclass(frozen=True, slots=True)
class _Rank:
    """A rank of one run: its directory's name, its number where it has one, its record files.

    ``given`` is True for one that a path named by itself.
    """

    name: str
    number: int | None
    files: tuple[Path, ...]
    given: bool = False


_Steps = dict[str, Path]
"""The step directories of a path, by their place below it; a path that is no root stands under ``""``."""


def rank_number(name: str) -> int | None:
    """The number in a rank directory's name; None for a bare ``rank`` and for a process."""
    found = _RANK.match(name)
    return int(found[1]) if found and found[1] else None


def pair_runs(
    target: Path,
    golden: Path,
    steps: Collection[int] = (),
    ranks: Collection[int] = (),
    formats: RecordFiles = (FILES,),
) -> Pairing:
    """Which record files of the target are compared with which of the golden.

    Args:
        target: The run under test.
        golden: The reference run.
        steps: The steps to compare; all that both have where none is given.
        ranks: The ranks to compare; all that both have where none is given.
        formats: The names of record files.

    Raises:
        UserError: A path that cannot be read or holds no run, two ranks of one number, or nothing that
            both sides have.
    """
    pairing = Pairing(formats=formats)
    sides = (
        _chosen(_steps(target, formats), target, steps),
        _chosen(_steps(golden, formats), golden, steps),
    )
    common = _common_steps(sides, (target, golden), pairing)
    refused: list[UserError] = []
    for ours, theirs in common:
        part = (ours or theirs) if len(common) > 1 else ""
        try:
            _pair_ranks(sides[0][ours], sides[1][theirs], part, frozenset(ranks), pairing)
        except UserError as error:
            refused.append(error)
    if refused and not pairing.pairs:
        raise refused[0]
    for one in refused:
        if isinstance(one, _Unrecorded):
            pairing.missing.append(f"{one.what} Its recording ended before it wrote any; it is left out.")
        else:
            pairing.damaged.append(one.what)
    if not pairing.pairs:
        problems = [*pairing.damaged, *pairing.missing]
        raise UserError(
            f"{target} and {golden} have no rank in common.",
            "Give the directories of two ranks to compare them whatever their numbers."
            if problems
            else "Check the paths.",
            problems,
        )
    return pairing


def ranks_of(
    path: Path, steps: Collection[int] = (), formats: RecordFiles = (FILES,)
) -> dict[str, dict[int, Path]]:
    """The record file of each rank of one run, by the step's place below ``path`` and the rank's number.

    Raises:
        UserError: A path that cannot be read or holds no run, or two ranks of one number.
    """
    found: dict[str, dict[int, Path]] = {}
    for name, step in _chosen(_steps(path, formats), path, steps).items():
        pairing = Pairing(formats=formats)
        ranks = _by_number(_ranks(step, (), pairing), step, (), pairing)
        if pairing.damaged:
            raise UserError(pairing.damaged[0], "Mend or move that directory away, and check again.")
        records = {number: _records_of(rank, formats) for number, rank in ranks.items()}
        found[name] = {number: file for number, file in records.items() if file is not None}
    return found


def _records_of(rank: _Rank, formats: RecordFiles) -> Path | None:
    return next((file for file in rank.files if _kind(file, formats) == 0), None)


# -- steps -----------------------------------------------------------------------------------------


def _steps(path: Path, formats: RecordFiles) -> _Steps:
    """The steps below ``path``; the path itself, under ``""``, where it is a step, a rank or a file."""
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        problem = getattr(error, "strerror", None) or "no such path"
        if isinstance(error, FileNotFoundError):
            problem = "it does not exist"
        raise UserError(
            f'"{path}" cannot be read: {problem}.', "Give a dump.json, or the directory of a run."
        ) from None
    if not path.is_file() and not path.is_dir():
        raise UserError(
            f'"{path}" is neither a file nor a directory.', "Give a dump.json, or the directory of a run."
        )
    if path.is_file():
        if not path.name.endswith(_all(formats)):
            raise UserError(
                f"{path} is not a record file.",
                "Give a file whose name ends in one of these, or its directory:",
                _all(formats),
            )
        return {"": path}
    names = _names(path)
    if not any(name in names for name in _all(formats)):
        found = {name: path / name for name in _in_order(names, _STEP) if (path / name).is_dir()}
        for part in PARTS:
            if part in names and (path / part).is_dir():
                inner = [path / part / name for name in _in_order(_names(path / part), _STEP)]
                found |= {f"{part}/{step.name}": step for step in inner if step.is_dir()}
        if found:
            return found
        if not _in_order(names, _RANK):
            raise _no_run(path, formats)
    return {"": path}


def _no_run(path: Path, formats: RecordFiles, more: str = "") -> UserError:
    return UserError(
        f"There is no {' or '.join(_all(formats))} in {path}{more}.",
        "Give a dump.json, or a rank, step or dump directory that holds one.",
    )


def _chosen(steps: _Steps, path: Path, wanted: Collection[int]) -> _Steps:
    if not wanted:
        return steps
    if "" in steps:
        raise UserError(
            f"{path} is not the root of a dump, so no step of it can be chosen.",
            "Leave --step out, or give the directory that holds the step directories.",
        )
    chosen = {name: step for name, step in steps.items() if _step_number(name) in wanted}
    lacking = sorted(set(wanted) - {_step_number(name) for name in chosen})
    if lacking:
        raise UserError(f"{path} has no step {_list(lacking)}.", "It has these:", list(steps))
    return chosen


def _step_number(name: str) -> int:
    return int(name.rpartition("step")[2])


def _common_steps(
    sides: tuple[_Steps, _Steps], paths: tuple[Path, Path], pairing: Pairing
) -> list[tuple[str, str]]:
    """The steps of both sides that are compared: equal names, or the only one with a step given by itself."""
    ours, theirs = sides
    if "" in ours or "" in theirs:
        for steps, path in zip(sides, paths):
            if len(steps) > 1:
                raise UserError(
                    f"{path} holds several steps.",
                    "Give one of them, or choose one with --step:",
                    [str(step) for step in steps.values()],
                )
        return [(next(iter(ours)), next(iter(theirs)))]
    common = [name for name in ours if name in theirs]
    if not common:
        raise UserError(
            f"{paths[0]} holds {', '.join(ours)} and {paths[1]} holds {', '.join(theirs)}.",
            "Give the directories of two steps to compare them whatever their numbers.",
        )
    for who, own, other in (("target", ours, theirs), ("golden", theirs, ours)):
        alone = [name for name in own if name not in other]
        if alone:
            pairing.missing.append(f"Only the {who} has {_some(alone)}.")
    return [(name, name) for name in common]


# -- ranks -----------------------------------------------------------------------------------------


def _pair_ranks(ours: Path, theirs: Path, part: str, wanted: frozenset[int], pairing: Pairing) -> None:
    """Add the pairs of two steps, or of whatever two paths hold, to the pairing."""
    targets, goldens = _ranks(ours, wanted, pairing), _ranks(theirs, wanted, pairing)
    alone = len(targets) == len(goldens) == 1 and not (wanted and _has_several(ours, theirs))
    if alone and any(rank.number is None or rank.given for rank in (*targets, *goldens)):
        number = next((rank.number for rank in (*targets, *goldens) if rank.number is not None), 0)
        common = {number: (targets[0], goldens[0])}
        left: tuple[Sequence[int], Sequence[int]] = (), ()
    else:
        first = _by_number(targets, ours, goldens, pairing)
        second = _by_number(goldens, theirs, targets, pairing)
        common = {number: (first[number], second[number]) for number in sorted(first.keys() & second.keys())}
        left = sorted(first.keys() - common.keys()), sorted(second.keys() - common.keys())
    lacking = sorted(wanted - common.keys())
    if lacking:
        everything = Pairing(formats=pairing.formats)
        _pair_ranks(ours, theirs, part, frozenset(), everything)
        raise UserError(
            f"Not both of {ours} and {theirs} have rank {_list(lacking)}.",
            "Both have these:",
            [str(number) for number in dict.fromkeys(pair.rank for pair in everything.pairs)],
        )
    where = f" in {part}" if part else ""
    for who, numbers in zip(("target", "golden"), left):
        if numbers and not wanted:
            pairing.missing.append(f"Only the {who} has rank {_list(numbers)}{where}.")
    for number, (target, golden) in common.items():
        if not wanted or number in wanted:
            label = SINGLE if alone else f"rank{number}"
            for place, (one, other) in enumerate(
                _pair_files(target, golden, f"rank {number}{where}", pairing)
            ):
                pairing.pairs.append(RunPair(one, other, part, label, number, one_of_two=place > 0))


def _has_several(*paths: Path) -> bool:
    """True where a step holds more than one rank."""
    return any(len(_in_order(_names(path), _RANK)) > 1 for path in paths if not path.is_file())


def _ranks(path: Path, wanted: Collection[int], pairing: Pairing) -> list[_Rank]:
    """The ranks in a step directory that are wanted; the one that a rank directory or a file is."""
    if path.is_file():
        return [_Rank(path.parent.name, rank_number(path.parent.name), (path,), given=True)]
    names = _names(path)
    own = _record_files(path, names, pairing.formats)
    if own:
        return [_Rank(path.name, rank_number(path.name), own, given=True)]
    directories = [name for name in _in_order(names, _RANK) if (path / name).is_dir()]
    found: list[_Rank] = []
    unreadable: list[UserError] = []
    before, is_begun = len(pairing.damaged), _STEP.match(path.name) is not None
    for name in directories:
        if wanted and rank_number(name) not in (None, *wanted):
            continue
        try:
            inside = _names(path / name)
        except UserError as error:
            pairing.damaged.append(error.what)
            unreadable.append(error)
            is_begun = False
            continue
        files = _record_files(path / name, inside, pairing.formats)
        if files:
            found.append(_Rank(name, rank_number(name), files))
        else:
            is_begun = is_begun and _is_unrecorded(inside)
            pairing.damaged.append(f"There is no {' or '.join(_all(pairing.formats))} in {path / name}.")
    if not found and not (directories and wanted):
        problem = (
            unreadable[0]
            if unreadable
            else _no_run(path, pairing.formats, " or its ranks" if directories else "")
        )
        if is_begun and directories:  # a recording that was killed: no damage
            del pairing.damaged[before:]
            raise _Unrecorded(problem.what, problem.fix)
        raise problem
    return found


class _Unrecorded(UserError):
    """A step that began to be recorded, and of which no rank has records."""


def _is_unrecorded(names: Sequence[str]) -> bool:
    """Return True if a rank directory holds nothing but what a recorder writes before the first records."""
    return all(name in _BEFORE_RECORDS or name.endswith(".part") for name in names)


def _by_number(
    ranks: Sequence[_Rank], path: Path, others: Sequence[_Rank], pairing: Pairing
) -> dict[int, _Rank]:
    """The ranks by their numbers; a single one without number is rank 0, unless it was given by itself.

    Two of one number are neither compared, and said to be damaged.
    """
    if others and len(ranks) == 1 and ranks[0].given and ranks[0].number is None:
        raise UserError(
            f"{path} is one rank, and the other run has several.",
            "Give one of them, or choose it with --rank:",
            [str(file) for rank in others for file in rank.files],
        )
    found: dict[int, _Rank] = {}
    doubled: dict[int, str] = {}
    for rank in ranks:
        number = rank.number or 0
        if number in found:
            doubled[number] = (
                f"{path} holds two ranks of number {number}: {found[number].name} and {rank.name}."
            )
        found[number] = rank
    pairing.damaged += doubled.values()
    return {number: rank for number, rank in found.items() if number not in doubled}


def _pair_files(target: _Rank, golden: _Rank, what: str, pairing: Pairing) -> list[tuple[Path, Path]]:
    """The record files of two ranks, each sort with its own; two that were given are left to the readers."""
    if target.given and golden.given and len(target.files) == len(golden.files) == 1:
        return [(target.files[0], golden.files[0])]
    ours, theirs = ({_kind(file, pairing.formats): file for file in one.files} for one in (target, golden))
    found = [(file, theirs[kind]) for kind, file in ours.items() if kind in theirs]
    if not found:
        pairing.damaged.append(
            f"The target holds {target.files[0].name} of {what}, and the golden {golden.files[0].name}; "
            "compare dump.json with dump.json, or debug.json with debug.json."
        )
    for who, one, other in (("target", ours, theirs), ("golden", theirs, ours)):
        alone = [file.name for kind, file in one.items() if kind not in other]
        if found and alone:
            pairing.missing.append(f"Only the {who} has {', '.join(alone)} of {what}.")
    return found


def _kind(path: Path, formats: RecordFiles) -> int:
    """Which of its format's files a record file is: 0 for calls, 1 for saved variables."""
    return next(kind for names in formats for kind, name in enumerate(names) if path.name.endswith(name))


def _all(formats: RecordFiles) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in formats for name in names))


def _record_files(directory: Path, names: Collection[str], formats: RecordFiles) -> tuple[Path, ...]:
    """The record files in a directory that holds ``names``, one of each kind: that of the first format."""
    found: dict[int, Path] = {}
    for format in formats:
        for kind, name in enumerate(format):
            if name in names:
                found.setdefault(kind, directory / name)
    return tuple(found[kind] for kind in sorted(found))


# -- directories -----------------------------------------------------------------------------------


def _names(path: Path) -> list[str]:
    """What a directory holds, in no order."""
    try:
        return [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}.", "Check its permissions."
        ) from None


def _in_order(names: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """The names that the pattern knows, by their numbers."""
    numbered = ((pattern.match(name), name) for name in names)
    known = [(int(next(filter(None, found.groups()), -1)), name) for found, name in numbered if found]
    return [name for _, name in sorted(known)]


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (f" and {len(numbers) - 20} more" if len(numbers) > 20 else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
