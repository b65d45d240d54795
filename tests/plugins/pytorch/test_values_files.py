"""Recorded values: objects of torch.distributed, names of files, checksums."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import xxhash
from probe_pytorch.storage.host_bytes import CHECKSUMS
from probe_pytorch.values import TorchCollector
from probe_recording.values.leaves import encode
from support.cases import every
from support.runs.values import STATISTICS, Pair, Point, Saved, Wrapper, leaf, tree
from torch import nn

# -- of torch.distributed --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """A group of this process alone."""
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


NUMBER = str(zlib.crc32(b"[0]"))


def test_process_group(group: Any) -> None:
    assert tree(group) == {"type": "torch.ProcessGroup", "group_ranks": [0], "group_id": NUMBER}


@pytest.mark.parametrize("name", ["SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND"])
def test_reduce_op(name: str) -> None:
    dist = pytest.importorskip("torch.distributed")
    expected = {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{name}"}
    operation = getattr(dist.ReduceOp, name)
    assert tree(operation) == expected
    assert tree(dist.ReduceOp(operation)) == expected


def test_point_to_point(group: Any) -> None:
    dist = torch.distributed
    saved = Saved()
    found = json.loads(encode(TorchCollector().tree([dist.P2POp(dist.isend, torch.ones(2), 0, tag=3)], "x", saved)))[0]
    assert list(found) == ["class_type", "tensor", "op", "peer", "tag", "group_id"]
    assert (found["class_type"], found["op"], found["group_id"]) == (
        "torch.distributed.P2POp",
        "isend",
        NUMBER,
    )
    assert found["tensor"] == leaf("float32", [2], (1.0, 1.0, 1.0, math.sqrt(2)), data_name="x.0.tensor.pt")


def test_point_to_point_has_plain_numbers(group: Any) -> None:
    dist = torch.distributed
    found = tree(dist.P2POp(dist.irecv, torch.ones(2), 0, tag=3))
    assert (found["peer"], found["tag"]) == (0, 3)


def test_distributed_tensor(group: Any) -> None:
    distributed = pytest.importorskip("torch.distributed.tensor")
    if not hasattr(distributed, "init_device_mesh"):
        pytest.skip("this torch has no torch.distributed.tensor.init_device_mesh")
    mesh = distributed.init_device_mesh("cpu", (1,))
    local = torch.tensor([[3.0], [-4.0]])
    saved = Saved()
    sharded = distributed.DTensor.from_local(local, mesh, [distributed.Shard(0)])
    found = json.loads(encode(TorchCollector().tree([sharded, nn.Parameter(sharded)], "x", saved)))
    assert [item["type"] for item in found] == ["torch.distributed.tensor.DTensor"] * 2
    assert [item["requires_grad"] for item in found] == [False, True]
    for at, item in enumerate(found):
        assert [item[name] for name in STATISTICS] == [3.0, -4.0, -0.5, 5.0]
        assert (item["shape"], item["device_mesh"], item["data_name"]) == ([2, 1], [0], f"x.{at}.pt")
        assert len(item["placements"]) == 1
    assert torch.equal(saved.tensors["x.0"], local)


def test_a_collective_that_goes_on_is_not_waited_for(group: Any) -> None:
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    running = functional.all_reduce(torch.ones(3), "sum", group)
    if type(running).__name__ != "AsyncCollectiveTensor":
        pytest.skip("this torch waits by itself")
    assert tree(running) == {**leaf("float32", [3]), "type": "AsyncCollectiveTensor"}
    assert not getattr(running, "completed", False)  # which torch has since version 2.2
    running.trigger_wait()


# -- names of files --------------------------------------------------------------------------------------


def test_names_follow_the_path() -> None:
    one = torch.ones(1)
    saved = Saved()
    collector = TorchCollector()
    collector.arguments((one, [2, {"k": one}], Pair(one, Point(one)), {"a.b": [one]}), "Torch.f.0.forward.input", saved)
    collector.keywords({"mask": one, "many": (one, one)}, "Torch.f.0.forward.kwargs", saved)
    assert [name.removeprefix("Torch.f.0.forward.") for name in saved.tensors] == [
        "input.0", "input.1.1.k", "input.2.left", "input.2.right.x", "input.3.a.b.0", "kwargs.mask",
        "kwargs.many.0", "kwargs.many.1",
    ]  # fmt: skip


def test_what_has_no_data_is_not_saved() -> None:
    saved = Saved()
    values = [
        torch.empty(0),
        torch.empty(2, device="meta"),
        torch.zeros(2, 2).to_sparse(),
        Wrapper(torch.ones(1)),
    ]
    for item in json.loads(encode(TorchCollector().tree(values, "x", saved))):
        assert "data_name" not in item
    assert not saved.tensors
    assert json.loads(encode(TorchCollector().tree(torch.tensor(1.0), "x", saved)))["data_name"] == "x.pt"


def test_a_tensor_that_could_not_be_stored_has_no_name() -> None:
    found = json.loads(encode(TorchCollector().tree(torch.ones(1), "x", lambda name, tensor: None)))
    assert "data_name" not in found


def test_the_structure_alone() -> None:
    collector = TorchCollector(CHECKSUMS["md5"], measured=False)
    assert json.loads(encode(collector.tree(torch.ones(2), "x"))) == leaf("float32", [2])


def test_data_without_statistics() -> None:
    saved = Saved()
    found = json.loads(encode(TorchCollector(None, measured=False).tree(torch.ones(2), "x", saved)))
    assert found == {**leaf("float32", [2]), "data_name": "x.pt"} and len(saved.tensors) == 1


# -- checksums -------------------------------------------------------------------------------------------


@every("mode", ["md5", "xxh3"])
@every(
    "array",
    [np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(12, dtype=np.int16).reshape(3, 4).T,
     np.array([-0.0, math.nan, 1.0]).astype(ml_dtypes.bfloat16), np.array([[True, False]]), np.array(7.0),
     np.arange(10.0)[::2], np.array([1 + 2j, 3j], np.complex64)],
    ids=lambda array: str(array.dtype),
)  # fmt: skip
def test_checksums_are_of_the_bytes_in_row_major_order(array: Any, mode: str) -> None:
    if array.dtype == ml_dtypes.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    data = array.tobytes()  # row-major whatever the strides
    expected = f"{zlib.crc32(data):08x}" if mode == "md5" else xxhash.xxh3_64(data).hexdigest()
    assert tree(tensor, TorchCollector(CHECKSUMS[mode]))["md5"] == expected
    assert (
        tree(
            tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor,
            TorchCollector(CHECKSUMS[mode]),
        )["md5"]
        == expected
    )


def test_checksums_see_conjugates_and_negatives_carried_out() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    for view in (tensor.conj(), tensor.conj().imag, torch._neg_view(torch.ones(3))):  # type: ignore[attr-defined]
        data = np.array(view.tolist(), "c8" if view.is_complex() else "f4").tobytes()
        assert tree(view, TorchCollector(CHECKSUMS["md5"]))["md5"] == f"{zlib.crc32(data):08x}"


def test_a_checksum_keeps_its_zeros() -> None:
    value = next(i for i in range(10_000) if zlib.crc32(bytes([i % 256, i // 256])) < 1 << 24)
    tensor = torch.tensor([value % 256, value // 256], dtype=torch.uint8)
    found = tree(tensor, TorchCollector(CHECKSUMS["md5"]))["md5"]
    assert len(found) == 8 and found[0] == "0" and int(found, 16) == zlib.crc32(bytes(tensor.tolist()))
