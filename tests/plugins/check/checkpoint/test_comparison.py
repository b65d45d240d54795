"""Planted faults: swapped, copied, transposed, stale and renamed tensors, and a changed learning rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_check import compare_checkpoints
from probe_check.checkpoint import nested
from probe_check.checkpoint.result import Relation
from support.runs.checkpoints import save

from probe_core.errors import UserError

UP, GATE = "model.layers.7.mlp.up_proj.weight", "model.layers.7.mlp.gate_proj.weight"


def llama(layers: int = 9, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    model = {"model.embed_tokens.weight": torch.randn(12, 8, generator=generator)}
    for number in range(layers):
        for name in ("self_attn.q_proj", "mlp.up_proj", "mlp.gate_proj"):
            model[f"model.layers.{number}.{name}.weight"] = torch.randn(16, 8, generator=generator)
        model[f"model.layers.{number}.input_layernorm.weight"] = torch.ones(8)
    return model


def compared(room: Path, target: Any, golden: Any, **options: Any) -> Any:
    torch.save(target, room / "target.pt")
    torch.save(golden, room / "golden.pt")
    return compare_checkpoints(room / "target.pt", room / "golden.pt", **options)


def test_equal_checkpoints_agree(tmp_path: Path) -> None:
    comparison = compared(tmp_path, llama(), llama())
    assert comparison.agrees and not comparison.differing
    assert comparison.sentence == "AGREE: all 37 tensors are equal"


def test_swapped_tensors_are_named(tmp_path: Path) -> None:
    target = llama()
    target[UP], target[GATE] = target[GATE], target[UP]
    comparison = compared(tmp_path, target, llama())
    assert [pair.match.relation for pair in comparison.differing] == [Relation.SWAPPED] * 2
    assert comparison.sentence == (
        f"DIVERGED: 2 of 37 tensors differ; the first, {UP}, equals gate_proj of the other: swapped?"
    )


def test_swapped_tensors_are_named_although_all_tensors_differ(tmp_path: Path) -> None:
    golden = llama()
    target = {name: tensor + 1e-3 for name, tensor in golden.items()}
    target[UP], target[GATE] = golden[GATE], golden[UP]
    sentence = compared(tmp_path, target, golden).sentence
    assert sentence == f"DIVERGED: 37 of 37 tensors differ; {UP} equals gate_proj of the other: swapped?"


def test_a_copied_tensor_is_named(tmp_path: Path) -> None:
    target = llama()
    target[UP] = target[GATE]
    assert compared(tmp_path, target, llama()).sentence.endswith(f"{UP} equals gate_proj of the other: copied?")
    assert "gate_proj equals it in the other: copied?" in compared(tmp_path, llama(), target).sentence


def test_layers_in_another_order_are_named_in_full(tmp_path: Path) -> None:
    target = llama()
    other = UP.replace("7", "6")
    target[UP], target[other] = target[other], target[UP]
    assert f"{other}, equals {UP} of the other: swapped?" in compared(tmp_path, target, llama()).sentence


def test_a_transposed_matrix_is_named(tmp_path: Path) -> None:
    target = llama()
    target[UP] = target[UP].t().contiguous()
    assert f"{UP} is the transpose of the other" in compared(tmp_path, target, llama()).sentence
    square = {"weight": torch.randn(5, 5)}
    assert "transpose" in compared(tmp_path, {"weight": square["weight"].t()}, square).sentence


def test_constant_tensors_are_no_evidence(tmp_path: Path) -> None:
    target, golden = {"a": torch.ones(8), "b": torch.zeros(8)}, {"a": torch.zeros(8), "b": torch.ones(8)}
    assert all(pair.match is None for pair in compared(tmp_path, target, golden).differing)


def iterations(root: Path, stale: bool) -> Path:
    for iteration in (10, 20):
        model = {f"decoder.{name}": tensor for name, tensor in llama(seed=iteration).items()}
        if stale and iteration == 20:
            model[f"decoder.{UP}"] = llama(seed=10)[UP]
        save(root, "00", {"model": model}, iteration)
    return root


def test_a_stale_tensor_is_named_with_its_iteration(tmp_path: Path) -> None:
    target, golden = iterations(tmp_path / "target", True), iterations(tmp_path / "golden", False)
    comparison = compare_checkpoints(target, golden)
    (pair,) = comparison.differing
    assert pair.match.relation is Relation.EARLIER_ITERATION
    assert comparison.sentence.endswith(f"decoder.{UP} equals that of iter_0000010 of the other: stale?")


def test_a_stale_tensor_is_found_in_directories_of_a_trainer(tmp_path: Path) -> None:
    for side in ("target", "golden"):
        for step in (500, 1000):
            directory = tmp_path / side / f"checkpoint-{step}"
            directory.mkdir(parents=True)
            is_stale = side == "target" and step == 1000
            torch.save(
                {**llama(seed=step), **({UP: llama(seed=500)[UP]} if is_stale else {})},
                directory / "model.pt",
            )
    sides = (tmp_path / side / "checkpoint-1000" for side in ("target", "golden"))
    assert f"{UP} equals that of checkpoint-500 of the other: stale?" in compare_checkpoints(*sides).sentence


def test_a_tensor_that_does_not_change_is_named(tmp_path: Path) -> None:
    for number, side in enumerate(("target", "golden")):
        directory = tmp_path / side
        directory.mkdir()
        for step in (1, 2):
            model = llama(seed=10 * number + step)
            model[UP] = llama(seed=10 * number + 1)[UP]
            torch.save(model, directory / f"step-{step}.pt")
    comparison = compare_checkpoints(tmp_path / "target" / "step-2.pt", tmp_path / "golden" / "step-2.pt")
    assert f"{UP} has not changed since step-1.pt: stale?" in comparison.sentence


def test_two_iterations_of_one_training_are_not_each_other(tmp_path: Path) -> None:
    root = iterations(tmp_path, True)
    comparison = compare_checkpoints(root / "iter_0000020", root / "iter_0000010")
    assert len(comparison.differing) == 27 and all(pair.match is None for pair in comparison.differing)


def test_wrappers_do_not_matter(tmp_path: Path) -> None:
    target = {"state_dict": {f"module._orig_mod.{name}": tensor for name, tensor in llama().items()}}
    assert compared(tmp_path, target, llama()).agrees
    bare = {name.removeprefix("model."): tensor for name, tensor in llama().items()}
    assert compared(tmp_path, {"model": bare, "epoch": 1}, llama()).agrees


def test_renamed_tensors_are_found_by_content(tmp_path: Path) -> None:
    target = {name.replace("up_proj", "w3"): tensor for name, tensor in llama().items()}
    comparison = compared(tmp_path, target, llama())
    assert comparison.agrees and sum(pair.is_by_content for pair in comparison.pairs) == 9


def test_a_mapping_renames_tensors(tmp_path: Path) -> None:
    target = {name.replace("up_proj", "w3"): tensor + 1 for name, tensor in llama().items()}
    target[GATE.replace("gate", "other")] = target.pop(GATE)
    mapping = tmp_path / "names.yaml"
    mapping.write_text(f"w3: up_proj\n{GATE.replace('gate', 'other')}: {GATE}\n")
    comparison = compared(tmp_path, target, llama(), mapping=mapping)
    assert len(comparison.differing) == 37 and not comparison.target_only and not comparison.golden_only


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("w4: up_proj", "target does not have"),
        (f"{UP}: nothing.weight", "golden checkpoint does not have"),
        ("- a", "does not map names to names"),
        ("a: [b]", "does not map names to names"),
        ("a: {b", "not valid yaml"),
    ],
)
def test_a_wrong_mapping_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "names.yaml").write_text(text)
    with pytest.raises(UserError, match=match):
        compared(tmp_path, llama(), llama(), mapping=tmp_path / "names.yaml")


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    target, golden = llama(), llama(10)
    comparison = compared(tmp_path, target, golden)
    assert not comparison.agrees and len(comparison.golden_only) == 4
    assert "4 tensors are only in the golden checkpoint, such as model.layers.9." in comparison.sentence


def trained(lr: float, names: bool = False) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    parameters: Any = [*model.named_parameters()] if names else model.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=lr)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}


def test_states_of_optimizers_have_the_names_of_parameters(tmp_path: Path) -> None:
    comparison = compared(tmp_path, trained(0.1), trained(0.1, names=torch.__version__ >= "2.6"))
    names = {pair.name for pair in comparison.pairs}
    assert {"0.weight", "optimizer.state.0.weight.exp_avg", "optimizer.state.1.bias.exp_avg_sq"} <= names
    assert comparison.agrees


def test_odd_names_are_written(tmp_path: Path, probe: Any) -> None:
    digits = f"decoder.layers.{'1' * 5000}.mlp.experts.local_experts.{'2' * 5000}.weight"
    model = {"a\udc80\x1b[31m\n": torch.arange(3.0), "重み": torch.arange(4.0), digits: torch.arange(5.0)}
    save(tmp_path / "golden", "00", {"model": model})
    save(tmp_path / "target", "00", {"model": {name: tensor + 1 for name, tensor in model.items()}})
    output = tmp_path / "out.json"
    assert probe("checkpoint", tmp_path / "target", tmp_path / "golden", "-o", output) == 0, probe.err
    assert json.loads(output.read_text()).keys() == model.keys() and "\x1b" not in probe.out


def test_a_long_list_is_one_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "MAX_VALUES", 100)
    content = {"model": {"w": torch.ones(2)}, "order": list(range(2_000)), "few": [1, 2]}
    comparison = compared(tmp_path, content, {**content, "order": list(range(1_999))})
    assert [setting.name for setting in comparison.settings] == ["order"]
    assert comparison.agrees and "2000 values" in str(comparison.settings[0].target)


def test_numbers_of_numpy_are_settings(tmp_path: Path) -> None:
    import numpy as np

    content = {"w": torch.ones(2), "loss": np.float64(0.5), "nan": float("nan")}
    comparison = compared(tmp_path, content, {**content, "loss": np.float64(0.25)})
    assert [(s.name, s.target, s.golden) for s in comparison.settings] == [("loss", 0.5, 0.25)]


def test_a_changed_learning_rate_is_named(tmp_path: Path) -> None:
    target = trained(0.1)
    target["optimizer"]["param_groups"][0]["lr"] = 0.01
    comparison = compared(tmp_path, target, trained(0.1))
    assert not comparison.agrees
    assert "optimizer.param_groups.0.lr is 0.01, and 0.1 in the other" in comparison.sentence


def test_the_command_writes_the_file_and_fails_on_request(tmp_path: Path, probe: Any) -> None:
    target = llama()
    target[UP] = target[UP] + 1
    paths = tmp_path / "target.pt", tmp_path / "golden.pt"
    for path, model in zip(paths, (target, llama())):
        torch.save(model, path)
    output = tmp_path / "out" / "similarity.json"
    assert probe("checkpoint", *paths, "-o", output) == 0, probe.err
    assert probe.out.startswith(f"DIVERGED: 1 of 37 tensors differ; {UP} differs by l2 11.3")
    assert json.loads(output.read_text())[UP]["shape"] == [16, 8]
    assert probe("checkpoint", *paths, "-o", output) == 2 and "exists already" in probe.err
    assert probe("checkpoint", *paths, "-o", tmp_path / "2.json", "--fail-on", "difference") == 1
    assert probe("checkpoint", paths[0], paths[0], "-o", tmp_path / "3.json", "--fail-on", "difference") == 0
