"""The file ``nan_analysis_{ns}.json`` (docs/nan-analyze.md#files)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from probe_recording.values.leaves import encode_number

from probe_watch.nan_analysis.findings import NonFiniteAnalysis, NonFiniteArrival, NonFiniteCall, RankRecord
from probe_watch.nan_analysis.levels import CallLevel

VERSION = 1
"""Version of the layout."""


def create_content(analysis: NonFiniteAnalysis) -> dict[str, Any]:
    """Return the content of the file; numbers that are not finite are texts."""
    return {
        "version": VERSION,
        "step": analysis.step,
        "first": [_convert_call(entry) for entry in analysis.first],
        "further": [_convert_call(entry) for entry in analysis.further],
        "path": [_convert_arrival(entry) for entry in analysis.path],
        "ranks": {str(rank): _convert_rank(entry) for rank, entry in analysis.ranks.items()},
    }


def _convert_call(first: NonFiniteCall) -> dict[str, Any]:
    infinity = first.infinity
    return {
        "rank": first.rank,
        "call": first.op,
        "origin": first.origin.value,
        "value": {
            "name": first.value.name,
            "kinds": list(first.value.kinds),
            "dtype": first.value.dtype,
            "shape": first.value.shape,
            "max": encode_number(first.value.maximum),
            "min": encode_number(first.value.minimum),
        },
        "argument": first.argument or None,
        "absent_ranks": list(first.absent),
        "infinity": None if infinity is None else {"call": infinity.op, "is_argument": infinity.is_argument},
        "modules": list(first.modules),
        "where": first.where or None,
        "unknown_inputs": first.unknown,
    }


def _convert_arrival(arrival: NonFiniteArrival) -> dict[str, Any]:
    return {
        "rank": arrival.rank,
        "call": arrival.op,
        "received_from": list(arrival.senders),
        "where": arrival.where or None,
    }


def _convert_rank(rank: RankRecord) -> dict[str, Any]:
    keys = rank.run.names()
    levels = Counter(record_level.scene.level.value for record_level in rank.levels)
    return {
        "file": rank.run.path.name,
        "calls": len(keys),
        "tensors": rank.tensors,
        "tensors_without_statistics": rank.unknown,
        "unfinished": rank.run.header.unfinished or None,
        "values": {mark.name.lower(): count for mark, count in rank.marks.items()},
        "levels": dict(sorted(levels.items())),
        "records": [_convert_level(keys[record_level.number], record_level) for record_level in rank.levels],
    }


def _convert_level(key: str, level: CallLevel) -> dict[str, Any]:
    return {
        "call": key,
        "level": level.scene.level.value,
        "scene": level.scene.value,
        "kinds": list(level.kinds),
        "ratio": encode_number(level.ratio),
    }
