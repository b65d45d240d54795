"""Runs of JAX, saved as a user of it would, and the plugin that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from support import TESTS

PLUGIN = TESTS / "npz_plugin"
X = np.array([3.0, 4.0], np.float32)
TURNED = np.array([4.0, -3.0], np.float32)
"""At a right angle to X."""
Calls = list[tuple[str, list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]]

SAME: Calls = [("exp", [X], [2 * X]), ("dot", [X, X], [X]), ("exp", [X], [X])]
OTHER: Calls = [("exp", [X], [2 * X]), ("dot", [X, X], [TURNED]), ("exp", [X], [X + TURNED])]


def save(directory: Path, calls: Calls) -> Path:
    """Save a run as a JAX user would."""
    directory.mkdir(parents=True)
    listed = []
    for number, (name, inputs, outputs) in enumerate(calls):
        sides = (
            {f"x{place}": array for place, array in enumerate(inputs)},
            {f"y{place}": array for place, array in enumerate(outputs)},
        )
        np.savez(directory / f"{number}.npz", **sides[0], **sides[1])
        listed.append({"name": name, "phase": "forward", "file": f"{number}.npz",
                       "inputs": list(sides[0]), "outputs": list(sides[1])})  # fmt: skip
    (directory / "manifest.json").write_text(json.dumps({"framework": "jax", "calls": listed}))
    return directory
