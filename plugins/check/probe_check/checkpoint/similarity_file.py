"""The file ``ckpt_similarity.json`` (docs/checkpoints.md#result-file)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from probe_recording.values.leaves import encode_number

from probe_check.checkpoint.result import CheckpointComparison, TensorPair
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text

DEFAULT_OUTPUT = "./ckpt_similarity.json"


def check_output(path: Path) -> None:
    """Check before the work that the result can be written.

    Raises:
        UserError: The file exists, or its directory is not writable.
    """
    try:
        is_there = os.path.lexists(path)
    except ValueError:  # a path that no file can have, which the directory's check reports
        is_there = False
    if is_there:
        raise UserError(f"{path} exists already.", "Give another file with -o, or remove it.")
    make_directory(path.parent)


def write_similarities(comparison: CheckpointComparison, path: Path) -> None:
    """Write the figures of all pairs.

    Raises:
        UserError: The file exists, or cannot be written.
    """
    check_output(path)
    content = {pair.name: _create_entry(pair) for pair in comparison.pairs}
    write_text(path, json.dumps(content, indent=4, allow_nan=False) + "\n")


def _create_entry(pair: TensorPair) -> dict[str, Any]:
    first, second = (list(shape) for shape in pair.shapes)
    if pair.distance is None:
        count = pair.counts[0] if pair.counts[0] == pair.counts[1] else list(pair.counts)
        return {"l2": None, "cos": None, "numel": count, "shape": [first, second]}
    cosine = pair.distance.cosine
    return {
        "l2": encode_number(pair.distance.l2),
        "cos": None if cosine is None else encode_number(cosine),
        "numel": pair.counts[0],
        "shape": first,
    }
