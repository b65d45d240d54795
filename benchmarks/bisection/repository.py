"""Generation of a git repository with a planted commit."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bisection.program import BROKEN_LINES, SCRIPT, PlantedChange

COMMITS = 64
SCRIPT_NAME = "train.py"
MARK = "# notes\n"
"""The end of the script, below which harmless commits add comments."""


@dataclass(frozen=True)
class GeneratedRepository:
    """A repository with one commit that changes numbers.

    Attributes:
        path: The work tree.
        commits: The names of all commits, oldest first.
        planted: The place of the planted commit in ``commits``.
        broken: The places of the commits that do not run.
    """

    path: Path
    commits: tuple[str, ...]
    planted: int
    broken: tuple[int, ...]


def git(directory: Path, *arguments: str) -> str:
    """Run git without the user's configuration, and return its output."""
    environment = {
        **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    identity = ("-c", "user.name=probe", "-c", "user.email=probe@localhost")
    command = ("git", *identity, *arguments)
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True).stdout


def generate(
    path: Path, change: PlantedChange, seed: int, commits: int = COMMITS, broken_lines: Sequence[str] = BROKEN_LINES
) -> GeneratedRepository:
    """Create a repository whose commits leave the numbers alone, but for the planted one.

    Args:
        path: The directory of the repository; it is created.
        change: The planted change.
        seed: A number that decides the places of the commits.
        commits: Number of commits.
        broken_lines: A line for each commit that does not run.
    """
    places = random.Random(seed)
    planted = places.randrange(2, commits - 2)
    candidates = [place for place in range(1, commits - 1) if place not in (planted, planted - 1)]
    broken = tuple(sorted(places.sample(candidates, len(broken_lines))))
    path.mkdir(parents=True)
    git(path, "init", "-q")
    text = f"{SCRIPT}\n\n{MARK}"
    assert text.count(change.old) == 1, change
    names = []
    for place in range(commits):
        if place == planted:
            text = text.replace(change.old, change.new)
        text += f"# {place}: nothing to add\n"
        broken_line = f"{broken_lines[broken.index(place)]}\n" if place in broken else ""
        (path / SCRIPT_NAME).write_text(text.replace("class Block", f"{broken_line}class Block"))
        git(path, "add", SCRIPT_NAME)
        git(path, "commit", "-q", "-m", f"Change {place}")
        names.append(git(path, "rev-parse", "HEAD").strip())
    return GeneratedRepository(path, tuple(names), planted, broken)
