"""Collective calls of three processes, a step of a recording each; a script of one rank.

    RANK=0 WORLD_SIZE=3 python collective_calls.py OUT

records ``OUT/run`` together with the other ranks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from support.runs.recording import Recording

WORLD = 3
PATIENCE = 120
"""Seconds until ranks that wait for each other are given up."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int32, torch.int64)


def values(rank: int, dtype: torch.dtype, size: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    if dtype in INTS:
        return torch.randint(0, 5, (size,), generator=generator).to(dtype)
    return (torch.randn(size, generator=generator) * 3).to(dtype)


def operations(dtype: torch.dtype) -> list[dist.ReduceOp]:
    names = ["SUM", "PRODUCT", "MAX", "MIN", *(("AVG",) if dtype in FLOATS else ("BAND", "BOR", "BXOR"))]
    return [getattr(dist.ReduceOp, name) for name in names]


def ordinary(rank: int, group: dist.ProcessGroup | None) -> None:
    """Sums of every kind, for all and in a group of two; pieces of unequal sizes."""
    for dtype in (*FLOATS, *INTS):
        for operation in operations(dtype):
            dist.all_reduce(values(rank, dtype), op=operation)
            if group is not None:
                dist.all_reduce(values(rank, dtype), operation, group)
        dist.reduce(values(rank, dtype), dst=2, op=dist.ReduceOp.MAX)
        gathered = [torch.empty(12, dtype=dtype) for _ in range(WORLD)]
        dist.all_gather(gathered, values(rank, dtype))
        received = values(rank, dtype)
        dist.broadcast(received, src=1)
    rows = torch.arange(rank, rank + 2 * (3 * rank + 3)).reshape(-1, 2)
    sizes = [rank, rank + 1, rank + 2]
    arriving = [rank, rank + 1, rank + 2]
    dist.all_to_all_single(torch.empty(sum(arriving), 2, dtype=rows.dtype), rows, arriving, sizes)
    if group is not None:
        there, mine = 2 - rank, torch.full((3,), rank + 0.5)
        works = [dist.isend(mine, there, group=group), dist.irecv(torch.empty(3), there, group=group)]
        for work in works:
            work.wait()
        gathered = [torch.empty(3), torch.empty(3)] if rank == 2 else None
        dist.gather(mine, gathered, dst=2, group=group)
        dist.scatter(torch.empty(3), gathered, src=2, group=group)
        dist.all_gather_into_tensor(torch.empty(6), mine, group=group)
        dist.reduce_scatter_tensor(torch.empty(2), torch.arange(4.0) + rank, group=group)


def wrapping(rank: int, group: dist.ProcessGroup | None) -> None:
    dist.all_reduce(torch.tensor([100, 1], dtype=torch.int8))
    dist.all_reduce(torch.tensor([2**30, 1], dtype=torch.int32))


def dropping(rank: int, group: dist.ProcessGroup | None) -> None:
    numbers = torch.ones(3)
    numbers[rank] = torch.nan
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX)


def leaving(rank: int, group: dist.ProcessGroup | None) -> None:
    dist.all_reduce(torch.tensor([60_000.0], dtype=torch.float16), op=dist.ReduceOp.AVG)


def vanishing(rank: int, group: dist.ProcessGroup | None) -> None:
    dist.all_reduce(torch.tensor([6e-8 if rank == 0 else 0.0], dtype=torch.float16), op=dist.ReduceOp.AVG)


def tagged(rank: int, group: dist.ProcessGroup | None) -> None:
    if rank == 0:
        works = [dist.isend(torch.full((2,), float(tag)), 1, tag=tag) for tag in (1, 2)]
    else:
        works = [dist.irecv(torch.empty(2), 0, tag=tag) for tag in (2, 1)] if rank == 1 else []
    for work in works:
        work.wait()


def from_anyone(rank: int, group: dist.ProcessGroup | None) -> None:
    for number in range(2):
        if rank == 0:
            dist.send(torch.full((2,), float(number)), 1)
        elif rank == 1:
            dist.recv(torch.empty(2), **({"src": 0} if number else {}))


STEPS: tuple[Callable[[int, dist.ProcessGroup | None], None], ...] = (
    ordinary, wrapping, dropping, leaving, vanishing, tagged, from_anyone,
)  # fmt: skip
"""Recorded functions, a step each."""


def main(out: Path) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(out.resolve() / "rendezvous").as_uri(),
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=PATIENCE),
    )
    pair = dist.new_group([0, 2])
    found = Recording(out / f"run{rank}", task="tensor", level="L1", dump_path=str(out / "run"))
    for step in STEPS:
        found.start()
        step(rank, pair if rank in (0, 2) else None)
        found.stop()
        found.step()
    found.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
