"""Results of comparisons, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_jsonl(directory: Path) -> list[dict[str, Any]]:
    """The rows of the one jsonl result in ``directory``."""
    (path,) = sorted(directory.glob("*compare_result*.jsonl"))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
