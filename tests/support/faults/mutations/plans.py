"""Draws of a case: the runs, the mutations that suit them, the command line."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.faults.mutations import file_edits, json_edits, pt_edits, yaml_edits
from support.faults.mutations.case import Case, Edit, Files, Mutation, edit_one, put

TENSOR_RUNS = ("tensor_L1_edge", "tensor_L0_nested", "tensor_L1_datamap", "debug_tensor")
STACK_RUNS = (*TENSOR_RUNS[:3], "tensor_L1_fuzzy", "stat_L1_edge", "md5_L1_edge", "stat_L1_datamap",
              "stat_mix_fuzzy", "stat_mix_dist2")  # fmt: skip
MAPPING_RUNS = ("tensor_L1_datamap", "stat_L1_datamap")
RUNS = (*STACK_RUNS, "debug_tensor", "debug_stat")
METRICS = ("ulp", "equal", "rmse", "mape")

BYTES: tuple[Edit, ...] = (
    file_edits.flip,
    file_edits.cut,
    file_edits.drop_slice,
    file_edits.empty,
    file_edits.tail,
)
TREES: tuple[Edit, ...] = (json_edits.remove, json_edits.change_value, json_edits.rename_key, json_edits.double_key,
         json_edits.swap_values, json_edits.whole_value)  # fmt: skip
TENSORS: tuple[Edit, ...] = (pt_edits.lie_about_sizes, pt_edits.other_storage, pt_edits.damage_description,
           pt_edits.other_byte_order, pt_edits.lose_member, pt_edits.lie_in_directory, pt_edits.bomb,
           pt_edits.hostile)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """A mutation, the runs that it suits, how often it is drawn."""

    what: str
    name: str
    mutate: Mutation
    runs: tuple[str, ...] = RUNS
    weight: float = 1.0

    def __str__(self) -> str:
        return f"{self.what}: {self.name}"


def _edits(files: Files, edits: dict[Edit, float], runs: tuple[str, ...] = RUNS) -> Iterator[Plan]:
    """Plans that edit one of ``files``; the edits and their weights."""
    for edit, weight in edits.items():
        yield Plan(files.__name__, edit.__name__, partial(edit_one, edit, files), runs, weight)


def _whole(files: Files, mutations: dict[Mutation, float], runs: tuple[str, ...] = RUNS) -> Iterator[Plan]:
    """Plans that do away with ``files``; the mutations and their weights."""
    for mutate, weight in mutations.items():
        yield Plan(files.__name__, mutate.__name__, mutate, runs, weight)


def _plans() -> Iterator[Plan]:
    """All mutations."""
    texts = (*BYTES, file_edits.not_utf8, *TREES)
    yield from _edits(Case.records, dict.fromkeys(texts, 2.0) | {json_edits.change_value: 10.0})
    yield from _edits(Case.records, {json_edits.data_name: 3.0}, TENSOR_RUNS)
    yield from _whole(Case.records, {file_edits.record_deleted: 1.0, file_edits.record_mistaken: 1.0})

    yield from _edits(Case.tensors, dict.fromkeys((*BYTES, *TENSORS), 1.5), TENSOR_RUNS)
    yield from _edits(Case.tensors, {pt_edits.laughing: 0.5}, TENSOR_RUNS)
    gone = (file_edits.tensor_mistaken, file_edits.tensors_deleted, file_edits.tensor_directory_deleted)
    yield from _whole(Case.tensors, dict.fromkeys(gone, 1.0), TENSOR_RUNS)
    yield from _whole(Case.tensors, {file_edits.tensor_no_file: 2.0}, TENSOR_RUNS)

    yield from _edits(Case.stacks, dict.fromkeys((*texts, json_edits.stack_value), 0.5), STACK_RUNS)
    yield from _edits(Case.compare, dict.fromkeys(texts, 0.4) | {json_edits.other_path: 2.0})
    mapping = {file_edits.flip: 0.7, file_edits.cut: 0.4, file_edits.not_utf8: 0.4}
    yield from _edits(Case.mapping, {**mapping, yaml_edits.any_yaml: 2.0, yaml_edits.names: 1.0}, MAPPING_RUNS)


PLANS = tuple(_plans())


def drawn(seed: int, number: int) -> tuple[tuple[Plan, ...], str, random.Random]:
    """The mutations and the runs of a case, and the rest of its dice."""
    rng = random.Random(f"{seed}:{number}")
    plan = rng.choices(PLANS, [plan.weight for plan in PLANS])[0]
    run = rng.choice(plan.runs)
    if rng.random() < 0.15:
        return (plan, rng.choice([other for other in PLANS if run in other.runs])), run, rng
    return (plan,), run, rng


def command_line(plan: Plan, run: str, case: Case) -> list[str]:
    """Return the arguments of ``probe`` in a case; it reads the file that the plan damages."""
    rng, (compare,) = case.rng, case.compare()
    stated = json.loads(compare.read_bytes())
    formats = rng.choices(("csv", "jsonl", "xlsx", "csv,jsonl"), (80, 8, 8, 4))[0]
    found = ["compare", "-o", "out", "--format", formats]
    if plan.what == "compare" or rng.random() < 0.4:
        if rng.random() < 0.4 and case.stacks():
            stated["stack_path"] = str(case.stacks()[0].relative_to(case.home))
            put(compare, json.dumps(stated).encode())
        found += ["-i", "compare.json"]
        found += ["-s"] if rng.random() < 0.6 else []
    else:
        paths = [Path(stated[key]) for key in ("npu_path", "bench_path")]
        found += [str(path.parent if path.suffix and rng.random() < 0.4 else path) for path in paths]
    if case.mapping() and (plan.what == "mapping" or rng.random() < 0.5):
        found += ["-dm", "data_mapping.yaml"]
    elif rng.random() < (0.8 if "fuzzy" in run else 0.15):
        found.append("-f")
    found += ["-hl"] if rng.random() < 0.3 else []
    found += ["-c"] if rng.random() < 0.1 else []
    share = 0.3 if "tensor" in run else 0.01
    return found + [part for name in METRICS if rng.random() < share for part in ("--metric", name)]
