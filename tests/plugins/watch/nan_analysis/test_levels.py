"""Levels of calls, beside a plain reading of their rules."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_watch.nan_analysis.levels import CallLevelKind, Scene, find_levels, load_rules
from probe_watch.nan_analysis.non_finite import find_non_finite
from support.runs.nan_dumps import DATA, write_case, write_rank

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager

NAN, INF = math.nan, math.inf


def scenes_of(directory: Path) -> dict[str, tuple[Scene, float | None]]:
    run = open_run(Manager(), directory / "dump.json")
    try:
        levels = find_levels(run.values, find_non_finite(run.values))
        return {run.names()[one.number]: (one.scene, one.ratio) for one in levels}
    finally:
        run.close()


def scene_of(line: str, tmp_path: Path) -> Scene | None:
    write_case({"ranks": {0: [line]}}, tmp_path)
    return next(iter(scenes_of(tmp_path / "rank0").values()), (None, None))[0]


@pytest.mark.parametrize(
    "line, scene",
    [
        ("Torch.log.0.forward: f -> n", Scene.ONLY_OUTPUT),
        ("Torch.log.0.forward: f -> [f i]", Scene.ONLY_OUTPUT),
        ("Torch.mul.0.forward: n f -> n", Scene.BOTH),
        ("Torch.mul.0.forward: [f j] -> i", Scene.BOTH),
        ("Torch.where.0.forward: b n f -> f", Scene.ONLY_INPUT),
        ("Functional.linear.0.forward: f weight=q -> f", Scene.ONLY_INPUT),
        ("Torch.mul.0.forward: f f -> h", Scene.MUTATION),
        ("Torch.mul.0.forward: f h -> h", None),
        ("Torch.mul.0.forward: f -> f", None),
        ("Torch.mul.0.forward: f s:-inf -> f", None),
        ("Torch.empty.0.forward: -> n", None),
        ("Torch.empty.0.forward: -> f n", Scene.ONLY_OUTPUT),
        ("Torch.empty_like.0.forward: n -> n", None),
        ("Distributed.recv.0.forward: n src=s:1 -> n", None),
        ("Distributed.recv.0.forward: tensor=n src=s:1 -> f", None),
        ("Distributed.recv.0.forward: f n -> f", Scene.ONLY_INPUT),
        ("Distributed.all_gather.0.forward: [n f] f -> [f f]", None),
        ("Distributed.all_gather.0.forward: [f f] n -> [n f]", Scene.BOTH),
        ("Tensor.masked_fill_.0.forward: j b s:0 -> f", None),
        ("Tensor.masked_fill.0.forward: j b s:0 -> f", Scene.ONLY_INPUT),
        ("Functional.relu.0.backward: n -> f", Scene.ONLY_INPUT),
    ],
)
def test_scene_of_a_call(line: str, scene: Scene | None, tmp_path: Path) -> None:
    assert scene_of(line, tmp_path) is scene


def test_levels_are_those_of_msprobe_but_for_listed_differences(tmp_path: Path) -> None:
    data = yaml.safe_load((DATA / "nan-levels-8.3.3.yaml").read_text())
    peer = dict(data["levels"])
    own = {line: scene_of(line, tmp_path / str(place)) for place, line in enumerate(peer)}
    levels = {line: scene and scene.level.value for line, scene in own.items()}
    listed = {line: level for entry in data["differences"] for line, level in entry["levels"]}
    assert {line: level for line, level in levels.items() if level != peer[line]} == listed


def test_scenes_have_the_documented_levels() -> None:
    assert [scene.level for scene in Scene] == [
        CallLevelKind.CRITICAL,
        CallLevelKind.HIGH,
        CallLevelKind.MEDIUM,
        CallLevelKind.HIGH,
    ]


def reference(record: dict[str, Any]) -> tuple[Scene | None, float | None]:
    """The rules read plainly, for records of flat lists of tensors."""
    sides = record["input_args"], record["output"]
    anomalies = [any(not math.isfinite(leaf[name]) for leaf in side for name in ("Max", "Min")) for side in sides]
    if any(anomalies):
        scenes = {(False, True): Scene.ONLY_OUTPUT, (True, True): Scene.BOTH, (True, False): Scene.ONLY_INPUT}
        return scenes[anomalies[0], anomalies[1]], None
    norms = [[leaf["Norm"] for leaf in side if not math.isnan(leaf["Norm"])] for side in sides]
    if not norms[0] or not norms[1]:
        return None, None
    received, returned = max(norms[0]), max(norms[1])
    ratio = returned if received == 0 else returned / received
    return (Scene.MUTATION, ratio) if ratio > load_rules().mutation else (None, None)


@pytest.mark.parametrize("seed", range(5))
def test_levels_follow_the_rules(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    numbers = (0.0, -0.0, 0.5, 1.0, 99.0, 101.0, 1e30)

    def leaf() -> dict[str, Any]:
        value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False}
        rare = source.random() < 0.2
        extremes = [source.choice((NAN, INF, -INF)) if rare else source.choice(numbers) for _ in range(2)]
        norm = source.choice((*numbers, INF)) if not rare else NAN
        return {**value, "Max": extremes[0], "Min": extremes[1], "Mean": 0.0, "Norm": norm}

    records = {
        f"Torch.mul.{number}.forward": {
            "input_args": [leaf() for _ in range(source.randrange(3))],
            "input_kwargs": {},
            "output": [leaf() for _ in range(source.randrange(3))],
        }
        for number in range(60)
    }
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    write_rank(tmp_path / "rank0", head, records)
    expected = {key: reference(record) for key, record in records.items()}
    assert scenes_of(tmp_path / "rank0") == {key: one for key, one in expected.items() if one[0] is not None}
