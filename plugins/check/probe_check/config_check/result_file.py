"""The file ``result.json`` (docs/config-check.md#files)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import ConfigDifference, Gap, ItemResult
from probe_check.json_values import encode_number
from probe_core.files.atomic import write_text

RESULT_FILE = "result.json"
LAYOUT_VERSION = 1
"""Version of the layout."""


def write_result(path: Path, comparison: ConfigComparison) -> None:
    """Write the levels, the differences and the gaps."""
    write_text(path, json.dumps(create_content(comparison), indent=1) + "\n")


def create_content(comparison: ConfigComparison) -> dict[str, Any]:
    """Return the content of the file; numbers that are not finite are texts."""
    return {
        "version": LAYOUT_VERSION,
        "bench": str(comparison.bench),
        "cmp": str(comparison.cmp),
        "level": comparison.level.value,
        "items": [_encode_item(item) for item in comparison.results],
        "differences": [_encode_difference(item) for item in comparison.differences],
        "gaps": [_encode_gap(item) for item in comparison.gaps],
    }


def _encode_item(result: ItemResult) -> dict[str, Any]:
    return {
        "name": result.item.value,
        "level": result.level.value,
        "rows": len(result.rows),
        "differences": len(result.differences),
    }


def _encode_difference(difference: ConfigDifference) -> dict[str, Any]:
    return {
        "kind": difference.condition.kind.value,
        "name": difference.condition.name,
        "statistic": difference.statistic or None,
        "bench": encode_number(difference.condition.golden),
        "cmp": encode_number(difference.condition.target),
        "level": difference.level.value,
        "item": difference.item.value,
        "step": difference.step,
        "rank": difference.rank,
    }


def _encode_gap(gap: Gap) -> dict[str, Any]:
    return {"kind": gap.kind.value, "item": gap.item.value, "side": gap.side, "names": list(gap.names)}
