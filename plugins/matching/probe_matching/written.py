"""The list of pairs as two yaml files, records and rows, which ``-lm`` writes (docs/pairing.md#modules)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

from probe_core.files.atomic import make_directory, write_text
from probe_core.matching.matching import NO_PARTNER, Matching
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.safe_text import UNSAFE_CHARACTERS
from probe_core.store.layout import RunPair


def write_pairs(plan: Plan, pair: RunPair, matching: Matching, target: Run, golden: Run) -> list[Path]:
    """Write the pairs of records to ``api_mapping_….yaml``, and the pairs of rows to ``data_mapping_….yaml``."""
    apis: dict[str, str] = {}
    rows: dict[str, str] = {}
    number = 0
    for record in target.records():
        for slot in record.slots:
            partner = matching.partners[number]
            number += 1
            if partner != NO_PARTNER:
                golden_record = golden.record(bisect_right(golden.starts, partner) - 1)
                apis.setdefault(record.key, golden_record.key)
                rows.setdefault(slot.name, golden_record.slots[partner - golden.starts[golden_record.index]].name)
    directory = plan.output / pair.part
    make_directory(directory)
    label = f"_{pair.label}" if pair.label else ""
    files = [directory / f"{kind}_mapping{label}_{plan.time_stamp}.yaml" for kind in ("api", "data")]
    for file, names in zip(files, (apis, rows)):
        write_text(file, _format_yaml(names))
    return files


def _format_yaml(names: Mapping[str, str]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(names), sort_keys=False, allow_unicode=True, width=1000)
    if UNSAFE_CHARACTERS.search(text):  # names that would control a terminal, or that no file can hold
        text = yaml.safe_dump(dict(names), sort_keys=False, allow_unicode=False, width=1000)
    return text
