"""Small checkpoints of Megatron, in pairs: the golden one, and the target that differs by noise."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from support import DATA

EXPECTED = DATA / "checkpoints-8.3.3.json"
DIFFERENCES = DATA / "differences-checkpoints.yaml"
SIDES = ("golden", "target")
Model = dict[str, torch.Tensor]


def values(name: str, side: str, shape: tuple[int, ...], scale: float = 0.01) -> torch.Tensor:
    """Return values that depend on the name; those of the target have noise."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    array = generator.standard_normal(shape)
    if side == "target":
        array = array + scale * generator.standard_normal(shape)
    return torch.from_numpy(np.asarray(array, np.float32))


def save(root: Path, rank: str, models: dict[str, Any], iteration: int = 10, **sizes: Any) -> None:
    """Write the file of a rank."""
    directory = root / f"iter_{iteration:07d}" / f"mp_rank_{rank}"
    directory.mkdir(parents=True)
    arguments = {
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "expert_model_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None,
        "num_layers": 2,
        "num_experts": None,
        **sizes,
    }
    content = {"args": argparse.Namespace(**arguments), "iteration": iteration, **models}
    torch.save(content, directory / "model_optim_rng.pt")
    (root / "latest_checkpointed_iteration.txt").write_text(str(iteration))


def layer(number: int, side: str, prefix: str = "", named: int | None = None) -> Model:
    """Return a layer; ``named`` is the number in its names if it is not its number in the model."""
    shapes = {
        "input_layernorm.weight": (8,),
        "self_attention.linear_qkv.weight": (24, 8),
        "self_attention.linear_qkv.bias": (24,),
        "self_attention.linear_proj.weight": (8, 8),
        "self_attention.linear_proj.bias": (8,),
        "pre_mlp_layernorm.weight": (8,),
        "mlp.linear_fc1.weight": (32, 8),
        "mlp.linear_fc1.bias": (32,),
        "mlp.linear_fc2.weight": (8, 32),
    }
    shown = number if named is None else named
    return {
        f"{prefix}decoder.layers.{shown}.{name}": values(f"{number}.{name}", side, shape)
        for name, shape in shapes.items()
    }


def ends(side: str) -> tuple[Model, Model]:
    """Return what comes before and after the layers."""
    return (
        {"embedding.word_embeddings.weight": values("embedding", side, (16, 8))},
        {
            "decoder.final_layernorm.weight": values("norm", side, (8,)),
            "output_layer.weight": values("output", side, (16, 8)),
        },
    )


def shard(model: Model, rank: int) -> Model:
    """Return the half of a tensor-parallel rank."""
    columns = ("word_embeddings.weight", "output_layer.weight", "linear_qkv", "linear_fc1")
    rows = ("linear_proj.weight", "linear_fc2.weight")
    sharded = {}
    for name, tensor in model.items():
        dimension = 0 if any(c in name for c in columns) else 1 if name.endswith(rows) else None
        sharded[name] = tensor if dimension is None else tensor.chunk(2, dimension)[rank].clone()
    return sharded


def tensor_parallel(root: Path, side: str) -> None:
    before, after = ends(side)
    for rank in range(2):
        model = shard({**before, **layer(0, side), **after}, rank)
        save(root, f"{rank:02d}", {"model": model}, tensor_model_parallel_size=2, num_layers=1)


def gated(root: Path, side: str) -> None:
    """Write two ranks with a gate: each has a part of the gate and the same part of the projection."""
    whole = layer(0, side)
    for rank in range(2):
        model = shard(whole, rank)
        for name in ("weight", "bias"):
            gate, projection = whole[f"decoder.layers.0.mlp.linear_fc1.{name}"].chunk(2)
            parts = [gate.chunk(2)[rank], projection.chunk(2)[rank]]
            model[f"decoder.layers.0.mlp.linear_fc1.{name}"] = torch.cat(parts)
        save(root, f"{rank:02d}", {"model": model}, tensor_model_parallel_size=2, num_layers=1, swiglu=True)


def pipeline(root: Path, side: str) -> None:
    before, after = ends(side)
    stages = ({**before, **layer(0, side)}, {**layer(1, side, named=0), **after})
    for stage, model in enumerate(stages):
        save(root, f"00_{stage:03d}", {"model": model}, pipeline_model_parallel_size=2)


def virtual_pipeline(root: Path, side: str) -> None:
    before, after = ends(side)
    for stage in range(2):
        first = {**(before if stage == 0 else {}), **layer(stage, side, named=0)}
        second = {**layer(stage + 2, side, named=0), **(after if stage else {})}
        sizes = {"virtual_pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 1}
        models = {"model0": first, "model1": second}
        save(root, f"00_{stage:03d}", models, pipeline_model_parallel_size=2, num_layers=4, **sizes)


def experts(root: Path, side: str) -> None:
    before, after = ends(side)
    for rank in range(2):
        model = {**before, "decoder.layers.0.mlp.router.weight": values("router", side, (4, 8)), **after}
        for local in range(2):
            number = 2 * rank + local
            name = f"decoder.layers.0.mlp.experts.local_experts.{local}.linear_fc1.weight"
            model[name] = values(f"expert {number}", side, (16, 8))
        save(
            root,
            f"00_{rank:03d}",
            {"model": model},
            expert_model_parallel_size=2,
            num_experts=4,
            num_layers=1,
        )


def grouped_experts(root: Path, side: str) -> None:
    for rank in range(2):
        model = {
            "decoder.layers.0.mlp.experts.weight1": values(f"grouped {rank}", side, (8, 32)),
            "decoder.layers.0.mlp.experts.linear_fc1.weight0": values(f"single {rank}", side, (16, 8)),
        }
        save(
            root,
            f"00_{rank:03d}",
            {"model": model},
            expert_model_parallel_size=2,
            num_experts=2,
            num_layers=1,
        )


def legacy(root: Path, side: str) -> None:
    model = {
        "language_model": {
            "embedding": {"word_embeddings": {"weight": values("embedding", side, (16, 8))}},
            "encoder": {
                "layers.0.input_norm.weight": values("input norm", side, (8,)),
                "layers.0.self_attention.query_key_value.weight": values("qkv", side, (24, 8)),
                "layers.0.self_attention.dense.weight": values("dense", side, (8, 8)),
                "layers.0.post_attention_norm.weight": values("post norm", side, (8,)),
                "layers.0.mlp.dense_h_to_4h.weight": values("h to 4h", side, (32, 8)),
                "layers.0.mlp.dense_4h_to_h.weight": values("4h to h", side, (8, 32)),
                "final_norm.weight": values("final", side, (8,)),
            },
            "output_layer": {"weight": values("output", side, (16, 8))},
        }
    }
    save(root, "00", {"model": model}, num_layers=1)


def older_normalization(root: Path, side: str) -> None:
    name = "language_model.encoder.layers.0.post_attention_layernorm.weight"
    save(root, "00", {"model": {name: values("norm", side, (8,))}}, num_layers=1)


def transformer_engine(root: Path, side: str) -> None:
    model = {
        "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight": values("norm", side, (8,)),
        "decoder.layers.0.self_attention.linear_qkv.weight": values("qkv", side, (24, 8)),
        "decoder.layers.0.mlp.linear_fc1.layer_norm_weight": values("norm 2", side, (8,)),
        "decoder.layers.0.mlp.linear_fc1.weight": values("fc1", side, (32, 8)),
    }
    save(root, "00", {"model": model}, num_layers=1)


def latent_attention(root: Path, side: str) -> None:
    name = "decoder.layers.0.self_attention.linear_kv_up_proj.weight"
    for rank in range(2):
        model = {name: values(f"kv {rank}", side, (16, 8))}
        save(root, f"{rank:02d}", {"model": model}, tensor_model_parallel_size=2, num_layers=1)


def figures(root: Path, side: str) -> None:
    """Write tensors of all types, and of values that need care."""
    is_target = side == "target"
    model = {
        f"type.{kind}": values(kind, side, (40,)).mul(8).to(getattr(torch, kind))
        for kind in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8")
    }
    model |= {
        "type.bool": values("bool", side, (40,), 1.0) > 0,
        "type.uint8": values("uint8", side, (40,), 1.0).abs().mul(50).to(torch.uint8),
        "value.equal": values("equal", "golden", (7, 3)),
        "value.both_zero": torch.zeros(5),
        "value.one_zero": torch.ones(5) * is_target,
        "value.negative_zero": torch.tensor([0.0, 1.0]) * (-1 if is_target else 1),
        "value.nan": torch.tensor([1.0, float("nan") if is_target else 2.0, 3.0]),
        "value.both_nan": torch.tensor([1.0, float("nan"), 3.0]),
        "value.infinite": torch.tensor([1.0, float("inf") if is_target else 2.0, 3.0]),
        "value.both_infinite": torch.tensor([1.0, float("inf"), 3.0]),
        "value.empty": torch.zeros(0, 3),
        "value.scalar": torch.tensor(2.0 + is_target),
        "value.large_half": torch.full((4,), 60000.0 - 1000 * is_target, dtype=torch.float16),
        "value.large": torch.tensor([3e38, 1.0, -3e38]) * (1.0 - 0.5 * is_target),
        "value.tiny": torch.tensor([1e-30, 2e-30]) * (1 + is_target),
        "value.opposite": torch.tensor([1.0, -2.0]) * (-1 if is_target else 1),
        "value.strided": values("strided", side, (6, 4)).t(),
        "value.shape": torch.arange(6.0).reshape((2, 3) if is_target else (3, 2)),
        "value.count": torch.arange(8.0 if is_target else 6.0),
        "value.complex": torch.complex(values("real", side, (9,)), values("imaginary", side, (9,))),
        "value.only_target" if is_target else "value.only_golden": torch.ones(2),
    }
    save(root, "00", {"model": model}, num_layers=1)


CASES: dict[str, Callable[[Path, str], None]] = {
    "tensor_parallel": tensor_parallel, "gated": gated, "pipeline": pipeline,
    "virtual_pipeline": virtual_pipeline, "experts": experts, "grouped_experts": grouped_experts,
    "legacy": legacy, "older_normalization": older_normalization, "transformer_engine": transformer_engine,
    "latent_attention": latent_attention, "figures": figures,
}  # fmt: skip
"""The cases that mindstudio-probe 8.3.3 compared (tests/plugins/check/checkpoint/make_expected.py)."""


def write_pair(case: str, directory: Path) -> tuple[Path, Path]:
    """Write both checkpoints of a case, and return the target and the golden one."""
    for side in SIDES:
        CASES[case](directory / side, side)
    return directory / "target", directory / "golden"
