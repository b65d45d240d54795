"""The command config-check: collection, comparison, messages and exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from probe_check.config_check.rules import load_rules
from support.runs.config_packs import cells_of, load_cases, members_of, write_packs, write_zip

SCRIPT = """#!/bin/bash
LR={lr}
torchrun --nproc_per_node 8 pretrain.py --lr $LR --seed 1 --hf-token t0psecret
"""
YAML = "model: {layers: 4, names: [a, b]}\noptimizer: [{lr: 0.1}, {lr: 0.2}]\nempty: null\n"


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables that are compared."""
    rules = load_rules()
    compared = {name for rule in rules.variables for name in (rule.npu, rule.gpu) if name}
    for name in compared | {name for name in os.environ if rules.npu_mark in name}:
        monkeypatch.delenv(name, raising=False)


def collect(directory: Path, name: str, lr: str, probe: Any) -> Path:
    script = directory / f"{name}.sh"
    script.write_text(SCRIPT.format(lr=lr))
    assert probe("config-check", "-d", script, "-o", directory / f"{name}.zip") == 0, probe.err
    return directory / f"{name}.zip"


def result_of(out: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((out / "result.json").read_text())
    return loaded


def test_a_changed_learning_rate_and_variable_are_named(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = collect(tmp_path, "bench", "1e-4", probe)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    cmp = collect(tmp_path, "cmp", "2e-4", probe)
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out") == 0, probe.err
    assert probe.out.splitlines()[0] == "The hyper-parameter lr differs: 2e-4 against 1e-4 (1 more difference)"
    assert "the environment variable CUDA_LAUNCH_BLOCKING differs: 1 against 0" in probe.out
    result = result_of(tmp_path / "out")
    assert [(one["kind"], one["name"], one["bench"], one["cmp"]) for one in result["differences"]] == [
        ("hyperparameter", "lr", "1e-4", "2e-4"), ("environment", "CUDA_LAUNCH_BLOCKING", "0", "1"),
    ]  # fmt: skip
    sheets = cells_of(tmp_path / "out" / "result.xlsx")
    assert sheets["summary"][1:] == [
        ["env", "error"], ["pip", "pass"], ["hyperparameters", "error"], ["conditions", "pass"],
    ]  # fmt: skip


def test_equal_configurations_are_silent(tmp_path: Path, probe: Any) -> None:
    packs = [collect(tmp_path, name, "1e-4", probe) for name in ("bench", "cmp")]
    assert probe("config-check", "-c", *packs, "-o", tmp_path / "out", "--fail-on", "warning") == 0, probe.err
    assert probe.out.startswith("The configurations agree in all that was compared")
    assert not probe.err
    assert result_of(tmp_path / "out")["differences"] == []


def test_the_spelling_of_msprobe_works(tmp_path: Path, probe: Any) -> None:
    bench, cmp = write_packs(load_cases()["hyperparameters_by_name"], tmp_path)
    out = tmp_path / "out"
    assert probe("-f", "pytorch", "config_check", "-c", bench, cmp, "-o", out) == 0, probe.err
    assert probe("-f", "pytorch", "config_check", "--compare", bench, cmp, "--output", out) == 0, probe.err
    assert {path.name for path in out.iterdir()} == {"bench", "cmp", "result.xlsx", "result.json"}


def test_a_directory_with_files_of_the_user_is_not_replaced(tmp_path: Path, probe: Any) -> None:
    bench, cmp = write_packs(load_cases()["weights"], tmp_path)
    precious = tmp_path / "out" / "bench" / "weights" / "model.pt"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out") == 2
    assert "model.pt" in probe.err and precious.read_text() == "precious"


def test_defaults_are_those_of_msprobe(tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert probe("config-check", "-d") == 0, probe.err
    assert probe("config-check", "-c", "config_check_pack.zip", "config_check_pack.zip") == 0, probe.err
    assert (tmp_path / "config_check_result" / "result.xlsx").exists()


def test_unpacked_packs_compare_like_zip_files(tmp_path: Path, probe: Any) -> None:
    bench, cmp = write_packs(load_cases()["weights"], tmp_path)
    probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out")
    again = tmp_path / "again"
    sides = tmp_path / "out" / "bench", tmp_path / "out" / "cmp"
    assert probe("config-check", "-c", *sides, "-o", again) == 0, probe.err
    assert cells_of(again / "result.xlsx") == cells_of(tmp_path / "out" / "result.xlsx")
    assert not (again / "bench").exists()


@pytest.mark.parametrize(("limit", "code"), [("warning", 1), ("error", 0)])
def test_fail_on_decides_by_the_worst_level(limit: str, code: int, tmp_path: Path, probe: Any) -> None:
    bench, cmp = write_packs(load_cases()["weights_of_one_side"], tmp_path)
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out", "--fail-on", limit) == code


def test_values_of_yaml_files_are_flattened(tmp_path: Path, probe: Any) -> None:
    (tmp_path / "train.yaml").write_text(YAML)
    pack = tmp_path / "pack.zip"
    assert probe("config-check", "-d", tmp_path / "train.yaml", "-o", pack) == 0, probe.err
    probe("config-check", "-c", pack, pack, "-o", tmp_path / "out")
    static = json.loads((tmp_path / "out/bench/hyperparameters/hyperparameters_static.json").read_text())
    assert static == {
        "model.layers": 4, "model.names": "['a', 'b']", "optimizer.0.lr": 0.1, "optimizer.1.lr": 0.2,
    }  # fmt: skip


def test_a_value_of_two_files_becomes_both(tmp_path: Path, probe: Any) -> None:
    for name, lr in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.yaml").write_text(f"lr: {lr}\nseed: 1\n")
    pack = tmp_path / "pack.zip"
    assert probe("config-check", "-d", tmp_path / "a.yaml", tmp_path / "b.yaml", "-o", pack) == 0, probe.err
    probe("config-check", "-c", pack, pack, "-o", tmp_path / "out")
    text = (tmp_path / "out/bench/hyperparameters/hyperparameters_static.json").read_text()
    assert json.loads(text) == {"lr": "{'description': 'duplicate_value', 'values': [1, 2]}", "seed": 1}


def test_secrets_are_neither_stored_nor_shown(tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hunter2")
    monkeypatch.setenv("ASCEND_SECRET_PATH", "hunter2")
    pack = collect(tmp_path, "pack", "1", probe)
    assert b"hunter2" not in pack.read_bytes()
    foreign = [
        write_zip(tmp_path / f"{name}.zip", members_of({"env": {"MY_PASSWORD": f"hunter{name}"}, "pip": {}}))
        for name in ("2", "3")
    ]
    for packs in ((pack, pack), foreign):
        out = tmp_path / "out"
        assert probe("config-check", "-c", *packs, "-o", out) == 0, probe.err
        texts = [path.read_text() for path in out.rglob("*") if path.suffix != ".xlsx" and path.is_file()]
        assert not [text for text in (*texts, probe.out, probe.err) if "hunter" in text or "t0psecret" in text]
        sheets = cells_of(out / "result.xlsx")
        assert "hunter" not in str(sheets) and "t0psecret" not in str(sheets)


def test_an_npu_is_recognised_by_names_without_values(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    bench = collect(tmp_path, "bench", "1", probe)
    monkeypatch.delenv("NCCL_ALGO")
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend")
    monkeypatch.setenv("HCCL_ALGO", "Ring")
    cmp = collect(tmp_path, "cmp", "1", probe)
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out") == 0
    assert {one["level"] for one in result_of(tmp_path / "out")["differences"]} == {"warning"}
    assert "NCCL_ALGO" not in probe.out


def test_a_variable_that_is_set_to_its_default_does_not_differ(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = collect(tmp_path, "bench", "1", probe)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    cmp = collect(tmp_path, "cmp", "1", probe)
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out", "--fail-on", "warning") == 0, probe.out


def test_what_only_one_pack_has_is_a_warning_line(tmp_path: Path, probe: Any) -> None:
    bench, cmp = write_packs(load_cases()["weights_of_other_steps"], tmp_path)
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out") == 0
    assert f"the weights of step1/rank0 were not compared, because only {bench} holds them" in probe.err
    assert f"the weights of step2/rank0 were not compared, because only {cmp} holds them" in probe.err
    assert [gap["kind"] for gap in result_of(tmp_path / "out")["gaps"]] == ["one_sided_steps"] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Exactly one of -d and -c"),
        (("-d", "-c"), "Exactly one of -d and -c"),
        (("-c", "good.zip"), "needs two paths"),
        (("-c", "good.zip", "good.zip", "good.zip"), "needs two paths"),
        (("-c", "good.zip", "absent.zip"), "absent.zip not found"),
        (("-c", "iter_1", "iter_2"), "holds no checkpoint"),
        (("-c", "good.zip", "other.zip"), "nothing in common"),
        (("-d", "absent.sh"), "absent.sh not found"),
        (("-d", "train.py"), "neither a shell script nor a yaml file"),
        (("-d", "bad.yaml"), "not valid yaml"),
        (("-d", "list.yaml"), "no mapping"),
        (("-d", "iter_1"), "neither a shell script nor a yaml file"),
        (("-d", "-o", "pack.tar"), "must end in .zip"),
        (("-d", "-o", "good.zip/pack.zip"), "is a file"),
        (("-c", "good.zip", "good.zip", "-o", "good.zip"), "is a file"),
        (("-c", "good.zip", "good.zip", "-o", "other"), "not of a pack"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...], message: str, tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_zip(Path("good.zip"), members_of({"env": {}}))
    write_zip(Path("other.zip"), members_of({"pip": {}}))
    for name in ("iter_1", "iter_2", "other/bench"):
        Path(name).mkdir(parents=True)
    Path("other/bench/thesis.tex").write_text("")
    for name, text in (("bad.yaml", "{"), ("list.yaml", "[1]"), ("train.py", "")):
        Path(name).write_text(text)
    assert probe("config-check", *arguments) == 2
    assert message in probe.err and len(probe.err.splitlines()) == 2, probe.err


def test_two_checkpoints_are_compared_as_by_probe_checkpoint(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
        torch.save({"weight": torch.ones(3)}, Path(name, "model.pt"))
    assert probe("-f", "pytorch", "config_check", "-c", "a", "b", "-o", "out.json") == 0, probe.err
    assert probe.out.startswith("AGREE: ") and Path("out.json").is_file()
    assert probe("config_check", "-c", "a", "b") == 0 and Path("ckpt_similarity.json").is_file()


def test_a_checkpoint_beside_a_pack_is_refused(tmp_path: Path, probe: Any) -> None:
    (tmp_path / "a" / "iter_0000001").mkdir(parents=True)
    write_zip(tmp_path / "b.zip", members_of({"env": {}}))
    assert probe("config-check", "-c", tmp_path / "a", tmp_path / "b.zip") == 2
    assert "probe checkpoint A B" in probe.err
