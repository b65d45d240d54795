"""Training in two processes, as a script of one rank and a function that starts all of them.

    RANK=0 WORLD_SIZE=2 python distributed_training.py ddp OUT
    RANK=1 WORLD_SIZE=2 python distributed_training.py ddp OUT

writes ``OUT/rank0.json`` and ``OUT/rank1.json``, an ``Outcome`` each. The ranks meet by a file in ``OUT``, so
that runs side by side do not meet each other. Recorded with ``--recorder MODULE[:EXPRESSION] --config FILE``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
import torch.distributed.nn.functional as differentiable
from torch import Tensor, nn

from support.programs.models import PROGRAMS
from support.programs.rank_processes import PATIENCE, run_ranks
from support.programs.training import VARIANTS, Built, Outcome, Recorder, StepFunction, seed, train


def reason_to_skip(kind: str) -> str:
    """Return why torch cannot run a kind of training on the CPU, or an empty string."""
    if kind == "fsdp2" and not (hasattr(fsdp, "fully_shard") and hasattr(torch.cpu.Stream(), "record_event")):
        return "this torch has no FSDP2 that runs on the CPU"
    if kind == "collectives" and not gathers_into_tensor():
        return "gloo of this torch has no all_gather_into_tensor"
    return ""


def gathers_into_tensor() -> bool:
    """Return True if gloo has the collectives that fill one tensor."""
    gathered, given = torch.ones(1), torch.ones(1)  # outlive the group: its threads must not free them
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_gather_into_tensor(gathered, given)
    except RuntimeError:
        return False
    finally:
        dist.destroy_process_group()
    return True


def ddp(model: nn.Module, step: StepFunction, optimizer: torch.optim.Optimizer) -> Built:
    """Several buckets; buffers go from the first rank to the others."""
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005), step, optimizer


def fsdp2(model: nn.Module, step: StepFunction, optimizer: torch.optim.Optimizer) -> Built:
    """Each layer of a stack sharded by itself, and what is left with the model."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for stack in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in stack:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    return model, step, optimizer


def collectives(model: nn.Module, step: StepFunction, optimizer: torch.optim.Optimizer) -> Built:
    """Collectives called by hand: around the forward pass, with gradients through them, and in backward."""

    def average(parameter: Tensor) -> None:
        work = dist.all_reduce(parameter.grad, async_op=True)
        work.wait()
        parameter.grad.div_(dist.get_world_size())

    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
        parameter.register_post_accumulate_grad_hook(average)
    pair = dist.new_group(list(range(dist.get_world_size())))

    def with_collectives(model: nn.Module, number: int) -> Tensor:
        loss = step(model, number)
        shared = differentiable.all_gather(loss.reshape(1), group=pair)
        loss = loss + 0.1 * torch.cat(shared).logsumexp(0) + 0.1 * differentiable.all_reduce(loss * loss)
        return loss + exchange(loss.detach())

    return model, with_collectives, optimizer


def exchange(value: Tensor) -> Tensor:
    """A small number that every rank's value goes into, along every way there is between ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    there, back = (rank + 1) % world, (rank - 1) % world
    mine = torch.stack([value * (place + 1) for place in range(world)])
    results = []

    everyone = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(everyone, mine)
    results += everyone
    flat = mine.new_empty(world * world)
    dist.all_gather_into_tensor(flat, mine)
    results.append(flat)

    for operation in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
        results.append(mine.clone())
        dist.all_reduce(results[-1], op=operation)
    results.append(mine.clone())
    dist.reduce(results[-1], dst=0)
    part = mine.new_empty(1)
    dist.reduce_scatter_tensor(part, mine)
    results.append(part)

    gathered = [torch.empty_like(mine) for _ in range(world)] if rank == 0 else None
    dist.gather(mine, gathered, dst=0)
    received = torch.empty_like(mine)
    dist.scatter(received, gathered, src=0)
    results.append(received)
    swapped = torch.empty_like(mine)
    dist.all_to_all_single(swapped, mine)
    results.append(swapped)

    first = rank % 2 == 0
    received = torch.empty_like(mine)
    for sends in (first, not first):
        if sends:
            dist.send(mine, there)
        else:
            dist.recv(received, back)
    results.append(received)
    received = torch.empty_like(mine)
    for work in (dist.isend(mine, there), dist.irecv(received, back)):
        work.wait()
    results.append(received)
    received = torch.empty_like(mine)
    works = [dist.P2POp(dist.isend, mine, there), dist.P2POp(dist.irecv, received, back)]
    for work in dist.batch_isend_irecv(works):
        work.wait()
    results.append(received)

    said: list[Any] = [None] * world
    dist.all_gather_object(said, {"rank": rank})
    assert [words["rank"] for words in said] == list(range(world))
    dist.barrier()
    return 1e-3 * torch.cat(results).mean()


SETUPS: dict[str, tuple[str, Callable[..., Built]]] = {
    "ddp": ("resnet", ddp),
    "fsdp2": ("blocks", fsdp2),
    "collectives": ("blocks", collectives),
}
"""The program that each trains unless told otherwise, and how it is made a distributed one."""


def make_recorder(text: str, config: str | None) -> Recorder | None:
    """From ``module:expression``: a recorder, or what makes one of a config's path; ``none`` is none.

    Without an expression it is the module's ``PrecisionDebugger``. An expression sees ``config`` and ``rank``.
    """
    if text == "none":
        return None
    name, _, expression = text.partition(":")
    names = {**vars(importlib.import_module(name)), "config": config, "rank": dist.get_rank()}
    found = eval(expression or "PrecisionDebugger", names)
    if isinstance(found, type) or not hasattr(found, "start"):
        found = found(config) if config else found()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("setup", choices=SETUPS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--program", choices=PROGRAMS)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--recorder", default="none")
    parser.add_argument("--config")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(options.out.resolve() / "rendezvous").as_uri(),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=PATIENCE),
    )
    program, distribute = SETUPS[options.setup]
    model, step, optimizer = distribute(*PROGRAMS[options.program or program].build())
    seed(rank)
    outcome = train(
        model,
        lambda model, number: step(model, number * world + rank),
        optimizer,
        VARIANTS[options.variant],
        options.steps,
        make_recorder(options.recorder, options.config),
    )
    (options.out / f"rank{rank}.json").write_text(json.dumps(dataclasses.asdict(outcome), indent=1))
    dist.barrier()
    dist.destroy_process_group()


def launch(setup: str, out: Path, *arguments: str, world: int = 2) -> list[Outcome]:
    """The outcome of each rank of ``distributed_training.py SETUP OUT ARGUMENTS``; ``out`` is a new directory."""
    out.mkdir(parents=True)
    command = [sys.executable, str(Path(__file__)), setup, str(out), *arguments]
    run_ranks(command, out, world)
    return [Outcome(**json.loads((out / f"rank{rank}.json").read_text())) for rank in range(world)]


if __name__ == "__main__":
    main()
