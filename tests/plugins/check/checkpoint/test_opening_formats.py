"""The same tensors in each format: what is read equals what torch and safetensors load."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from probe_check import compare_checkpoints
from probe_check.checkpoint.opening import open_checkpoint
from probe_check.checkpoint.tensors import JoinedTensor, StoredTensor
from support.runs.checkpoints import layer, save, shard, values

from probe_core.errors import UserError

KINDS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
         "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")  # fmt: skip


def model() -> dict[str, torch.Tensor]:
    tensors = {f"t.{kind}": (values(kind, "golden", (7, 5)) * 9).to(getattr(torch, kind)) for kind in KINDS}
    tensors |= {"scalar": torch.tensor(3.5), "empty": torch.zeros(0, 4), "one": torch.ones(1)}
    return tensors


def assert_is_read(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    checkpoint = open_checkpoint(path)
    assert not checkpoint.unreadable and checkpoint.tensors.keys() == tensors.keys()
    for name, expected in tensors.items():
        tensor = checkpoint.tensors[name]
        assert tensor.shape == tuple(expected.shape), name
        wide = torch.complex128 if expected.is_complex() else torch.float64
        reference = expected.to(wide).numpy().reshape(-1)
        mine = np.concatenate([tensor.read(start, 1) for start in range(tensor.count)] or [np.empty(0)])
        assert np.array_equal(mine.astype(reference.dtype), reference), name
        whole = tensor.read(0, tensor.count)
        assert np.array_equal(whole.astype(reference.dtype), reference), name


def test_files_of_torch_save(tmp_path: Path) -> None:
    torch.save(model(), tmp_path / "x.pt")
    assert_is_read(tmp_path / "x.pt", model())


def test_older_files_of_torch_save(tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in model().items() if "float8" not in name}
    torch.save(tensors, tmp_path / "x.bin", _use_new_zipfile_serialization=False)
    assert_is_read(tmp_path / "x.bin", tensors)


def test_strided_shared_and_wrapped_tensors(tmp_path: Path) -> None:
    base = values("base", "golden", (6, 8))
    tensors = {
        "transposed": base.t(), "rows": base[::2], "columns": base[:, 1:5], "same": base,
        "parameter": torch.nn.Parameter(base), "buffer": torch.nn.Buffer(base[1]) if hasattr(torch.nn, "Buffer") else base[1],
    }  # fmt: skip
    torch.save(tensors, tmp_path / "x.pt")
    assert_is_read(tmp_path / "x.pt", {name: tensor.detach() for name, tensor in tensors.items()})


def test_an_expanded_tensor_is_not_compared_and_named(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1, 3).expand(4, 3), "b": torch.ones(2)}, tmp_path / "x.pt")
    comparison = compare_checkpoints(tmp_path / "x.pt", tmp_path / "x.pt")
    assert len(comparison.pairs) == 1 and not comparison.agrees
    assert "a repeats its elements" in comparison.sentence


def test_safetensors_and_shards(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {name: tensor for name, tensor in model().items() if "complex128" not in name}
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    assert_is_read(tmp_path, tensors)
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    names = list(tensors)
    weights = {}
    for number, part in enumerate((names[:5], names[5:])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        safetensors.save_file({name: tensors[name] for name in part}, sharded / file)
        weights |= dict.fromkeys(part, file)
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    assert_is_read(sharded, tensors)
    assert compare_checkpoints(tmp_path, sharded).agrees


def test_sharded_bin_files_with_an_optimizer(tmp_path: Path) -> None:
    tensors = {"a.weight": values("a", "golden", (3, 4)), "b.weight": values("b", "golden", (2, 2))}
    for number, name in enumerate(tensors):
        torch.save({name: tensors[name]}, tmp_path / f"pytorch_model-{number}.bin")
    index = {"weight_map": {name: f"pytorch_model-{number}.bin" for number, name in enumerate(tensors)}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    states = {number: {"exp_avg": tensor + 1} for number, tensor in enumerate(tensors.values())}
    torch.save({"state": states, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}, tmp_path / "optimizer.pt")
    torch.save({"anything": 1}, tmp_path / "training_args.bin")
    states_by_name = {f"optimizer.state.{name}.exp_avg": tensor + 1 for name, tensor in tensors.items()}
    assert_is_read(tmp_path, {**tensors, **states_by_name})
    assert open_checkpoint(tmp_path).settings["optimizer.param_groups.0.lr"] == 0.1


def test_distributed_checkpoints(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    tensors = {name: tensor for name, tensor in model().items() if "float8" not in name}
    dcp.save(dict(tensors), checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert_is_read(tmp_path / "dcp", tensors)


def varint(value: int) -> bytes:
    rest = value >> 7
    return bytes([value & 0x7F | (0x80 if rest else 0)]) + (varint(rest) if rest else b"")


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(name: str, kind: str, shape: tuple[int, ...], data: bytes) -> bytes:
    sizes = b"".join(varint(1 << 3) + varint(size) for size in shape)
    return field(1, field(1, name.encode()) + field(2, sizes + field(2, kind.encode()) + field(3, data)))


def test_checkpoints_of_mindspore(tmp_path: Path) -> None:
    whole = values("mindspore", "golden", (30, 4))
    data = whole.numpy().tobytes()
    parts = [entry("split", "Float32", (30, 4), data[start : start + 160]) for start in range(0, 480, 160)]
    content = b"".join([
        entry("layer.weight", "Float32", (30, 4), data), *parts, entry("step", "Int32", (0,), b"\5\0\0\0"),
        entry("half", "BFloat16", (30, 4), whole.bfloat16().view(torch.int16).numpy().tobytes()),
    ])  # fmt: skip
    (tmp_path / "x.ckpt").write_bytes(content)
    expected = {"layer.weight": whole, "split": whole, "step": torch.tensor(5), "half": whole.bfloat16()}
    assert_is_read(tmp_path / "x.ckpt", expected)
    for stop in range(1, len(content), 37):
        (tmp_path / "cut.ckpt").write_bytes(content[:stop])
        with contextlib.suppress(UserError):
            assert open_checkpoint(tmp_path / "cut.ckpt").tensors.keys() < expected.keys()


@pytest.mark.parametrize("dimension", [0, 1])
def test_a_joined_tensor_reads_as_the_whole(tmp_path: Path, dimension: int) -> None:
    whole = values("whole", "golden", (6, 10, 3))
    parts = whole.split([1, 2, 3] if dimension == 0 else [4, 1, 5], dimension)
    torch.save({str(number): part.clone() for number, part in enumerate(parts)}, tmp_path / "x.pt")
    joined = JoinedTensor(list(open_checkpoint(tmp_path / "x.pt").tensors.values()), dimension)
    flat = whole.numpy().reshape(-1)
    assert joined.shape == (6, 10, 3)
    for start in range(0, flat.size, 7):
        for count in (1, 5, 30, 31, 97):
            assert np.array_equal(joined.read(start, min(count, flat.size - start)), flat[start : start + count])


def whole_model(root: Path) -> Path:
    save(root, "00", {"model": layer(0, "golden")}, num_layers=1, swiglu=True)
    return root


def test_tensor_parallel_ranks_equal_the_whole_model(tmp_path: Path) -> None:
    for rank in range(2):
        save(
            tmp_path / "two",
            f"{rank:02d}",
            {"model": shard(layer(0, "golden"), rank)},
            tensor_model_parallel_size=2,
        )
    assert compare_checkpoints(tmp_path / "two", whole_model(tmp_path / "one")).agrees


def test_gated_ranks_equal_the_whole_model(tmp_path: Path) -> None:
    from support.runs.checkpoints import gated

    gated(tmp_path / "two", "golden")
    assert compare_checkpoints(tmp_path / "two", whole_model(tmp_path / "one")).agrees


def test_pipeline_stages_equal_the_whole_model(tmp_path: Path) -> None:
    from support.runs.checkpoints import ends, pipeline, virtual_pipeline

    before, after = ends("golden")
    for write, layers in ((pipeline, 2), (virtual_pipeline, 4)):
        root = tmp_path / write.__name__
        write(root / "parts", "golden")
        whole = before | {k: v for number in range(layers) for k, v in layer(number, "golden").items()} | after
        save(root / "whole", "00", {"model": whole})
        assert compare_checkpoints(root / "parts", root / "whole").agrees


def test_unequal_copies_of_ranks_are_named(tmp_path: Path) -> None:
    for rank in range(2):
        model = {"decoder.final_layernorm.weight": torch.arange(4.0) + rank}
        save(tmp_path, f"{rank:02d}", {"model": model}, tensor_model_parallel_size=2)
    assert "such as decoder.final_layernorm.weight" in open_checkpoint(tmp_path).remarks[0]


def test_arguments_of_unknown_classes_are_settings(tmp_path: Path) -> None:
    class_file = (
        "import argparse, enum\nclass Kind(enum.Enum):\n    A = 1\nclass Other:\n    def __init__(self): self.x = 1\n"
    )
    (tmp_path / "odd_module.py").write_text(class_file)
    script = (
        "import argparse, torch, odd_module\n"
        "content = {'model': {'w': torch.ones(2)}, 'args': argparse.Namespace(lr=0.1, kind=odd_module.Kind.A, "
        "other=odd_module.Other(), dtype=torch.bfloat16), 'set': {1}, 'rng': torch.get_rng_state()}\n"
        "torch.save(content, 'x.pt')\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    assert checkpoint.settings["args.lr"] == 0.1 and checkpoint.settings["args.dtype"] == "torch.bfloat16"
    assert checkpoint.settings["args.other.x"] == 1 and "odd_module.Kind" in str(checkpoint.settings["args.kind"])
    assert "odd_module" not in sys.modules and isinstance(argparse.Namespace(), argparse.Namespace)


def test_a_contiguous_tensor_is_read_in_blocks(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(1000.0)}, tmp_path / "x.pt")
    tensor = open_checkpoint(tmp_path / "x.pt").tensors["w"]
    assert isinstance(tensor, StoredTensor) and tensor.read(500, 2).tolist() == [500.0, 501.0]
