"""Reading of ``construct.json``, which names the module around each call (docs/formats.md#construct-json)."""

from __future__ import annotations

import sys
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.user_files import load_object
from probe_core.model.run import Construct


def read_construct(path: Path) -> Construct:
    """Return the parents in a construct file; empty if the file is missing or damaged."""
    if not path.is_file():
        return Construct({})
    try:
        members = load_object(path, "construct file")
    except UserError:
        return Construct({})
    parents: dict[str, str] = {}
    for child, parent in members.items():
        if isinstance(parent, list) and parent:  # [parent, micro step]
            parent = parent[0]
        if isinstance(parent, str):
            parents[sys.intern(child)] = sys.intern(parent)
    return Construct(parents)
