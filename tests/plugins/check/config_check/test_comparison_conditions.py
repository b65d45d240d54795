"""Conditions of recorded runs and of packs: one model, one comparison, one vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from probe_diagnosis.conditions.differences import find_condition_differences
from probe_diagnosis.conditions.file import parse_conditions
from support.runs.config_packs import cells_of, write_zip


def conditions(**facts: dict[str, Any]) -> str:
    return json.dumps({"schema": 1, "framework": "pytorch", "facts": facts, "random": [], "batch": {}, "draws": []})


BENCH = conditions(
    environment={"OMP_NUM_THREADS": "1"}, numerics={"matmul_precision": "highest"}, versions={"torch": "2.1"}
)
CMP = conditions(environment={"OMP_NUM_THREADS": "2"}, numerics={"matmul_precision": "high"}, versions={"torch": "2.2"})


def write_run(root: Path, text: str, place: str) -> Path:
    (root / place).mkdir(parents=True)
    (root / place / "conditions.json").write_text(text)
    return root


def test_two_recorded_runs_are_compared_as_a_diagnosis_does(tmp_path: Path, probe: Any) -> None:
    runs = [write_run(tmp_path / name, text, "step0/rank") for name, text in (("a", BENCH), ("b", CMP))]
    assert probe("config-check", "-c", *runs, "-o", tmp_path / "out") == 0, probe.err
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    bench, cmp = parse_conditions(BENCH.encode()), parse_conditions(CMP.encode())
    assert bench is not None and cmp is not None
    assert [(one["kind"], one["name"]) for one in result["differences"]] == [
        (one.kind.value, one.name) for one in find_condition_differences(cmp, bench)
    ]
    assert probe.out.startswith("The setting matmul_precision differs: high against highest")
    assert list(cells_of(tmp_path / "out" / "result.xlsx")) == ["summary", "conditions"]


def test_step_and_rank_directories_are_accepted(tmp_path: Path, probe: Any) -> None:
    runs = [write_run(tmp_path / name, text, "step3/rank1") for name, text in (("a", BENCH), ("b", CMP))]
    for below in ("step3", "step3/rank1"):
        pair = [run / below for run in runs]
        assert probe("config-check", "-c", *pair, "-o", tmp_path / "out") == 0, probe.err
        assert "OMP_NUM_THREADS" in probe.out


def test_a_pack_is_compared_with_a_recorded_run(tmp_path: Path, probe: Any) -> None:
    pack = write_zip(tmp_path / "pack.zip", {"env": "{}", "step0/rank0/conditions.json": BENCH})
    run = write_run(tmp_path / "run", CMP, "step0/rank")
    assert probe("config-check", "-c", pack, run, "-o", tmp_path / "out") == 0, probe.err
    assert probe.out.startswith("The setting matmul_precision")
    assert "the environment variables were not compared" in probe.err


def test_damaged_conditions_are_a_warning(tmp_path: Path, probe: Any) -> None:
    for place in ("step0/rank", "step1/rank"):
        write_run(tmp_path / "a", BENCH, place)
        write_run(tmp_path / "b", CMP if place == "step1/rank" else '{"schema": 1}', place)
    assert probe("config-check", "-c", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out") == 0
    assert "the conditions of step0/rank0 in" in probe.err and "cannot be read" in probe.err
    assert probe.out.startswith("The setting matmul_precision")


def test_runs_without_readable_conditions_do_not_agree(tmp_path: Path, probe: Any) -> None:
    runs = [write_run(tmp_path / name, text, "step0/rank") for name, text in (("a", BENCH), ("b", '{"schema": 1}'))]
    assert probe("config-check", "-c", *runs, "-o", tmp_path / "out") == 2
    assert "nothing in common" in probe.err


def test_a_condition_of_several_steps_is_one_difference(tmp_path: Path, probe: Any) -> None:
    for place in ("step0/rank0", "step0/rank1", "step1/rank0"):
        write_run(tmp_path / "a", BENCH, place)
        write_run(tmp_path / "b", CMP, place)
    assert probe("config-check", "-c", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out") == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(result["differences"]) == 3
    assert len(cells_of(tmp_path / "out" / "result.xlsx")["conditions"]) == 1 + 3 * 3


def test_the_most_serious_difference_of_a_condition_is_reported(tmp_path: Path, probe: Any) -> None:
    file = "hyperparameters/hyperparameters_{}.json"
    packs = [
        write_zip(tmp_path / f"{name}.zip", {
            "env": "{}",
            file.format("static"): json.dumps({"a.lr": 1, "seed": 1} if name == "bench" else {"seed": 1}),
            file.format("dynamic"): json.dumps({"a.lr": 1 if name == "bench" else 2}),
        })
        for name in ("bench", "cmp")
    ]  # fmt: skip
    assert probe("config-check", "-c", *packs, "-o", tmp_path / "out") == 0, probe.err
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["level"] == "error"
    assert [(one["name"], one["level"], one["cmp"]) for one in result["differences"]] == [("lr", "error", 2)]
