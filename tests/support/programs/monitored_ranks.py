"""A data-parallel training on two processes, monitored: ``python monitored_ranks.py CONFIG`` with RANK set."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from probe_check import TrainerMon
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    group = dist.new_group([0, 1])
    TrainerMon(sys.argv[1]).set_monitor(model, 1, optimizer, dp_group=group if len(sys.argv) > 2 else None)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(3):
        model(torch.randn(5, 4)).square().sum().backward()
        total = torch.ones(2) * (1 + dist.get_rank())
        dist.all_reduce(total)
        work = dist.all_reduce(total, async_op=True)
        assert work is not None
        work.wait()
        optimizer.step()
        optimizer.zero_grad()
    print(total.tolist(), flush=True)
    dist.destroy_process_group()


main()
