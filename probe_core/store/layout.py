"""Finding the run that a path means.

A path may be a ``dump.json`` or ``debug.json``, a rank directory, a step directory, or the
root of a dump. Whatever names one run is taken; whatever names several lists them.
"""

from __future__ import annotations

import re
from pathlib import Path

from probe_core.errors import UserError

FILES = ("dump.json", "debug.json")
_STEP = re.compile(r"step\d+$")
_RANK = re.compile(r"(rank(\d*)|proc(\d+))$")
SINGLE = ""
"""The label of a rank directory that carries no rank number."""


def is_run_file(path: Path) -> bool:
    """True for the files that hold records, by name."""
    return path.name.endswith(FILES)


def find_ranks(path: Path, kind: str | None = None) -> dict[str, Path]:
    """The runs below ``path`` by rank: ``{"": file}`` for one, ``{"rank0": file, …}`` for several.

    Args:
        path: A record file, or a rank, step or dump directory.
        kind: ``dump.json`` or ``debug.json`` where only that file will do.

    Raises:
        UserError: Nothing there, or several steps or files to choose from.
    """
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        problem = getattr(error, "strerror", None) or "no such path"
        if isinstance(error, FileNotFoundError):
            problem = "it does not exist"
        raise UserError(
            f'"{path}" cannot be read: {problem}.', "Give a dump.json, or the directory of a run."
        ) from None
    if path.is_file():
        if not is_run_file(path):
            raise UserError(
                f"{path} is not a record file.",
                "Give a file whose name ends in one of these, or its directory:",
                FILES,
            )
        return {SINGLE: path}
    own = _files_in(path, kind)
    if own:
        return {SINGLE: _only(own, path, "record files")}
    steps = _directories(path, _STEP)
    if steps:
        return find_ranks(_only(steps, path, "steps"), kind)
    ranks = _directories(path, _RANK)
    runs = {rank.name: files for rank in ranks if (files := _files_in(rank, kind))}
    if not runs:
        raise UserError(
            f"There is no {' or '.join([kind] if kind else FILES)} in {path}.",
            "Give a dump.json, or a rank, step or dump directory that holds one.",
        )
    found = {name: _only(files, path / name, "record files") for name, files in runs.items()}
    return {SINGLE: next(iter(found.values()))} if len(found) == 1 else found


def _directories(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        entries = [entry for entry in path.iterdir() if pattern.match(entry.name) and entry.is_dir()]
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}.", "Check its permissions."
        ) from None
    return sorted(entries, key=lambda entry: _number(entry.name))


def _number(name: str) -> tuple[int, str]:
    digits = re.search(r"\d+$", name)
    return (int(digits.group()) if digits else -1, name)


def rank_number(name: str) -> int:
    """The number in a rank directory's name; -1 for a bare ``rank``."""
    return _number(name)[0]


def _files_in(directory: Path, kind: str | None) -> list[Path]:
    return [directory / name for name in FILES if kind in (None, name) and (directory / name).is_file()]


def _only(paths: list[Path], parent: Path, what: str) -> Path:
    if len(paths) == 1:
        return paths[0]
    raise UserError(f"{parent} holds several {what}.", "Give one of them:", [str(path) for path in paths])


def pair_ranks(target: Path, golden: Path) -> list[tuple[str, Path, Path]]:
    """Which record file of the target is compared with which of the golden: (label, target, golden).

    The label is empty for a single run and ``rank{n}`` for each of several; ranks pair by
    position after sorting by number, as many on one side as on the other.
    """
    targets, goldens = find_ranks(target), find_ranks(golden)
    if set(targets) == {SINGLE} and set(goldens) == {SINGLE}:
        return [(SINGLE, targets[SINGLE], goldens[SINGLE])]
    if len(targets) != len(goldens):
        several, path = (targets, target) if len(targets) > len(goldens) else (goldens, golden)
        raise UserError(
            f"{target} holds {len(targets)} rank(s) and {golden} holds {len(goldens)}.",
            f"Give directories with the same number of ranks, or choose one rank of {path}:",
            [str(file) for file in several.values()],
        )
    return [
        (f"rank{max(rank_number(name), 0)}", ours, theirs)
        for (name, ours), theirs in zip(targets.items(), goldens.values())
    ]
