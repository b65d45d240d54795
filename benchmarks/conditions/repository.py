"""Git without the configuration of the user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

COMMITTER = {
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "a" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "a@example.org" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": "2026-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")},
}  # fmt: skip


def git(repository: Path, *arguments: str) -> None:
    """Run git in a repository, without the configuration of the user."""
    subprocess.run(["git", *arguments], cwd=repository, env={**os.environ, **COMMITTER}, check=True)
