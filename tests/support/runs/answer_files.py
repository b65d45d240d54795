"""Answer files of comparisons, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_answer(directory: Path) -> Any:
    """Return the content of the one answer file in ``directory``."""
    (path,) = directory.glob("answer_*.json")
    return json.loads(path.read_text("utf-8"))


def first_cause(directory: Path) -> str:
    """Return the call that the answer file in ``directory`` names first; empty if it names none."""
    causes = read_answer(directory)["causes"]
    return str(causes[0]["op"]) if causes else ""
