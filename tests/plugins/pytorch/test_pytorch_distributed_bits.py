"""Two processes under gloo: DDP, FSDP2 and collectives are the same to the bit while they are recorded."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.programs import distributed_training, training
from support.sampling import sampled

MODES = [("statistics", "L1"), ("tensor", "mix"), ("statistics", "L0")]
OFTEN = {"ddp": MODES[2], "fsdp2": MODES[1], "collectives": MODES[0]}
"""The mode that each kind of training is always recorded in."""
CASES = [(kind, *mode) for kind in OFTEN for mode in MODES]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def outcomes(kind: str) -> list[training.Outcome]:
        return distributed_training.launch(kind, tmp_path_factory.mktemp("bare") / kind)

    return outcomes


@pytest.mark.parametrize(
    "kind, task, level", sampled(CASES, 0, lambda case: OFTEN[case[0]] == case[1:]), ids=lambda value: value
)
def test_distributed_training_is_the_same(kind: str, task: str, level: str, bare: Any, tmp_path: Path) -> None:
    if reason := distributed_training.reason_to_skip(kind):
        pytest.skip(reason)
    run = tmp_path / "run"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": task, "level": level, "dump_path": str(run)}))
    found = distributed_training.launch(
        kind, tmp_path / "recorded", "--recorder", "probe_pytorch.debugger", "--config", str(config)
    )
    for rank, (expected, outcome) in enumerate(zip(bare(kind), found)):
        assert training.differences(expected, outcome) == []
        data = json.loads((run / f"step0/rank{rank}/dump.json").read_text())["data"]
        assert data
        if level != "L1":
            gradients = [value for key, value in data.items() if key.endswith("parameters_grad")]
            assert gradients and all(leaf != [None] for one in gradients for leaf in one.values())
        if kind == "collectives" and level == "L1":
            assert any(key.startswith("Distributed.all_reduce") for key in data)
    assert not list(run.rglob("dump_error_info.log"))
