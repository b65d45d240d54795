"""The file ``result.json`` (docs/config-check.md#files)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import ConfigDifference, Gap, ItemResult
from probe_core.files.atomic import write_text

FILE = "result.json"
VERSION = 1
"""Version of the layout."""


def write_result(path: Path, comparison: ConfigComparison) -> None:
    """Write the levels, the differences and the gaps."""
    write_text(path, json.dumps(content_of(comparison), indent=1) + "\n")


def content_of(comparison: ConfigComparison) -> dict[str, Any]:
    """Return the content of the file; numbers that are not finite are texts."""
    return {
        "version": VERSION,
        "bench": str(comparison.bench),
        "cmp": str(comparison.cmp),
        "level": comparison.level.value,
        "items": [_item(one) for one in comparison.results],
        "differences": [_difference(one) for one in comparison.differences],
        "gaps": [_gap(one) for one in comparison.gaps],
    }


def _item(one: ItemResult) -> dict[str, Any]:
    return {
        "name": one.item.value,
        "level": one.level.value,
        "rows": len(one.rows),
        "differences": len(one.differences),
    }


def _difference(one: ConfigDifference) -> dict[str, Any]:
    return {
        "kind": one.condition.kind.value,
        "name": one.condition.name,
        "statistic": one.statistic or None,
        "bench": _plain(one.condition.golden),
        "cmp": _plain(one.condition.target),
        "level": one.level.value,
        "item": one.item.value,
        "step": one.step,
        "rank": one.rank,
    }


def _gap(one: Gap) -> dict[str, Any]:
    return {"kind": one.kind.value, "item": one.item.value, "side": one.side, "names": list(one.names)}


def _plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
