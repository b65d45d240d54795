"""The callback for transformers' Trainer: losses are bit-equal, and steps are those of the optimizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def train(out: Path, callbacks: list[Any], max_steps: int = 2, resume: str | None = None) -> tuple[Any, ...]:
    """Train a small Llama with accumulated gradients, evaluations and checkpoints; return its losses and parameters."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        attention_dropout=0.1,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    ids = [(torch.arange(8) + start) % 32 for start in range(16)]
    data = [{"input_ids": row, "labels": row} for row in ids]
    arguments = transformers.TrainingArguments(
        str(out), max_steps=max_steps, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
        disable_tqdm=True, logging_steps=1, save_steps=1, eval_strategy="steps", eval_steps=1, use_cpu=True, seed=1,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:2], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


def test_a_training_is_the_same_and_recorded_by_steps(tmp_path: Path) -> None:
    from probe_pytorch.integrations.transformers import ProbeCallback

    losses, parameters = train(tmp_path / "plain", [])
    recorded = train(tmp_path / "out", [ProbeCallback(tmp_path / "run", level="L1")])
    assert losses == recorded[0] and all(map(torch.equal, parameters, recorded[1]))
    for step in (0, 1):
        names = json.loads((tmp_path / f"run/step{step}/rank/dump.json").read_text())["data"]
        calls = [name for name in names if name.startswith("Functional.embedding") and name.endswith("forward")]
        assert calls == ["Functional.embedding.0.forward", "Functional.embedding.1.forward"]  # no evaluation
    train(tmp_path / "out", [ProbeCallback(tmp_path / "run", level="L1")], 3, str(tmp_path / "out/checkpoint-2"))
    assert sorted(path.name for path in (tmp_path / "run").glob("step*")) == ["step0", "step1", "step2"]
