"""Writer of synthetic pairs of runs for benchmarks: ``python make_runs.py OUT KIND [CALLS]``.

It needs torch. The kinds are:

* big: 128 calls with 4 float32 tensors of 1 MiB each; 1 GiB in all.
* small: 5000 calls with 5 tensors of 16x16 each; 25,000 rows, one file per tensor.
* packed: the same with one file per side, as probe records by default.
* stat: 20,000 calls with 5 rows each and no tensors; 100,000 rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from probe_pytorch.storage.tensors import FileStore, NamingStore, PackedStore

KINDS = {
    "big": (128, (512, 512), 4, True),
    "small": (5000, (16, 16), 5, True),
    "packed": (5000, (16, 16), 5, True),
    "stat": (20_000, (16, 16), 5, False),
}
APIS = (
    "Functional.linear", "Functional.layer_norm", "Tensor.matmul", "Functional.gelu", "Torch.add",
    "Functional.softmax", "Tensor.transpose", "Functional.scaled_dot_product_attention",
)  # fmt: skip


def leaf(tensor: torch.Tensor, name: str | None, requires_grad: bool) -> dict[str, Any]:
    """Return the leaf of a tensor; ``name`` is its file, or None."""
    record = {
        "type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape),
        "Max": tensor.max().item(), "Min": tensor.min().item(), "Mean": tensor.mean().item(),
        "Norm": tensor.norm().item(), "requires_grad": requires_grad,
    }  # fmt: skip
    return {**record, "data_name": name} if name else record


def make(out: Path, kind: str, calls: int | None = None) -> tuple[Path, Path]:
    """Write the two runs of a kind.

    Args:
        out: The directory to write to.
        kind: One of ``KINDS``.
        calls: Number of calls; None for that of the kind.

    Returns:
        The rank directories of target and golden.
    """
    usual, shape, count, save = KINDS[kind]
    calls = calls or usual
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    sides = {side: out / side / "step0" / "rank0" for side in ("npu", "bench")}
    data: dict[str, dict[str, Any]] = {side: {} for side in sides}
    stacks: dict[str, Any] = {}
    stores: dict[str, NamingStore] = {}
    for side, directory in sides.items():
        folder = directory / "dump_tensor_data"
        folder.mkdir(parents=True, exist_ok=True)
        stores[side] = PackedStore(folder) if kind == "packed" else FileStore(folder)
    for number in range(calls):
        key = f"{APIS[number % len(APIS)]}.{number // len(APIS)}.forward"
        golden = [torch.randn(shape, generator=generator) for _ in range(count)]
        for side in sides:
            leaves = []
            for place, tensor in enumerate(golden):
                if side == "npu":
                    worse = 50 * (number % 7 == 0) * (place == count - 1)
                    tensor = tensor + 1e-4 * torch.randn(shape, generator=generator) * (1 + worse)
                where = f"input.{place}" if place < count - 1 else "output.0"
                name = stores[side].save(f"{key}.{where}", tensor) if save else None
                leaves.append(leaf(tensor, name, place == 1))
            data[side][key] = {"input_args": leaves[:-1], "input_kwargs": {}, "output": leaves[-1:]}
        frame = f"File /opt/model/layer.py, line {number % 300}, in forward, \n return self.f(x)"
        main = "File /opt/model/train.py, line 10, in <module>, \n out = model(x)"
        stacks.setdefault(str(number % 300), [[], [frame, main]])[0].append(key)
    for store in stores.values():
        store.close()
    for side, directory in sides.items():
        head = {"task": "tensor" if save else "statistics", "level": "L1", "framework": "pytorch",
                "dump_data_dir": str(directory / "dump_tensor_data") if save else None}  # fmt: skip
        (directory / "dump.json").write_text(json.dumps({**head, "data": data[side]}, indent=1))
        (directory / "stack.json").write_text(json.dumps(stacks, indent=1))
        (directory / "construct.json").write_text("{}")
    paths = {f"{side}_path": str(directory / "dump.json") for side, directory in sides.items()}
    (out / "compare.json").write_text(json.dumps({**paths, "is_print_compare_log": False}))
    return sides["npu"], sides["bench"]


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None)
