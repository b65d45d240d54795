"""Two processes that train attention with a causal mask; a script of one rank.

    RANK=0 WORLD_SIZE=2 python nan_training.py OUT

records ``OUT/run``: a clean step, then a step in which a nan arises on rank 1 and reaches rank 0 by all_reduce.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F

from support.runs.recording import Recording

WORLD = 2
PATIENCE = 120
"""Seconds until ranks that wait for each other are given up."""


def attend(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Attention with masks of both usual forms: infinities put in, and infinities added."""
    scores = torch.matmul(values, weight)
    hidden = torch.triu(torch.ones_like(scores, dtype=torch.bool), 1)
    mask = torch.full_like(scores, float("-inf")).triu(1)
    first = F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    second = F.softmax(scores + mask, dim=-1)
    third = F.scaled_dot_product_attention(values[None], values[None], values[None], attn_mask=mask[None])
    return torch.matmul(first + second, values) + third[0]


def step(rank: int, weight: torch.Tensor, *, is_faulty: bool) -> None:
    values = torch.rand(4, 4, generator=torch.Generator().manual_seed(rank)) + 0.5
    found = attend(values, weight)
    if is_faulty and rank == 1:
        found = torch.sqrt(found - 100)
    dist.all_reduce(found.detach())
    loss = (found * found.detach()).sum()
    loss.backward()
    dist.all_reduce(weight.grad)


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
    recording = Recording(out / f"run{rank}", task="statistics", level="L1", dump_path=str(out / "run"))
    for is_faulty in (False, True):
        weight = torch.eye(4, requires_grad=True)
        recording.start()
        step(rank, weight, is_faulty=is_faulty)
        recording.stop()
        recording.step()
    recording.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
