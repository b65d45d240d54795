"""A small model cut over several processes, as a script of one rank and a function that starts all of them.

    RANK=0 WORLD_SIZE=2 python parallel_training.py OUT golden scale --task tensor --fault-rank 1
    RANK=1 WORLD_SIZE=2 python parallel_training.py OUT golden scale --task tensor --fault-rank 1

records the runs ``OUT/golden/tensor`` and ``OUT/scale/tensor``. Two ranks hold the halves of each layer (tensor
parallel); of four, two such pairs see batches of their own (data parallel). A run named after a fault has one
operation spoiled on one rank.
"""

from __future__ import annotations

import argparse
import ctypes
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from support.programs.rank_processes import PATIENCE, run_ranks
from support.runs.recording import Recording

SPLIT = 2
"""The number of ranks that share a layer."""
VOCABULARY, BATCH, LENGTH, WIDTH, INNER = 32, 4, 6, 16, 32
TASKS: dict[str, dict[str, Any]] = {
    "tensor": {"task": "tensor"},
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
}
"""Configurations of recordings, by name."""


class Place:
    """The place of a rank: its number among those that share its layers, and both of its groups."""

    def __init__(self, rubbish: int) -> None:
        self.rubbish = rubbish
        world, rank = dist.get_world_size(), dist.get_rank()
        self.part, self.replica, self.replicas = rank % SPLIT, rank // SPLIT, world // SPLIT
        pairs = [[first, first + 1] for first in range(0, world, SPLIT)]
        alike = [list(range(part, world, SPLIT)) for part in range(SPLIT)]
        pair_groups = [dist.new_group(ranks) for ranks in pairs]  # every rank makes all of them
        data_groups = [dist.new_group(ranks) for ranks in alike]
        self.pair_ranks, self.pair = pairs[self.replica], pair_groups[self.replica]
        self.alike = data_groups[self.part]

    def memory(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory to receive into. What lies in it is not the same in every run."""
        tensor = torch.empty(shape, dtype=dtype)
        ctypes.memset(tensor.data_ptr(), self.rubbish, tensor.nbytes)
        return tensor


class Copy(torch.autograd.Function):
    """All parts take the same in; their gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Place) -> Tensor:
        ctx.place = place
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.place.pair)
        return gradient, None


class Reduce(torch.autograd.Function):
    """The sum of what the parts give out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Place) -> Tensor:
        x = x.clone()
        dist.all_reduce(x, group=place.pair)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Gather(torch.autograd.Function):
    """Outputs of the parts, side by side in the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Place) -> Tensor:
        ctx.place = place
        gathered = place.memory((SPLIT * x.shape[0], *x.shape[1:]))
        dist.all_gather_into_tensor(gathered, x.contiguous(), group=place.pair)
        return torch.cat(gathered.chunk(SPLIT), dim=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.chunk(SPLIT, dim=-1)[ctx.place.part].contiguous(), None


class Shift(torch.autograd.Function):
    """The first part's last column is added to the first column of the second part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Place) -> Tensor:
        ctx.place = place
        if place.part == 0:
            dist.send(x[..., -1].contiguous(), place.pair_ranks[1])
            return x.view_as(x)
        received = place.memory(x.shape[:-1])
        dist.recv(received, place.pair_ranks[0])
        return torch.cat([x[..., :1] + received.unsqueeze(-1), x[..., 1:]], dim=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        place = ctx.place
        if place.part == 1:
            dist.send(gradient[..., 0].contiguous(), place.pair_ranks[0])
            return gradient, None
        received = place.memory(gradient.shape[:-1])
        dist.recv(received, place.pair_ranks[1])
        return torch.cat([gradient[..., :-1], gradient[..., -1:] + received.unsqueeze(-1)], dim=-1), None


def initial(rows: int, columns: int) -> Tensor:
    """A whole weight, the same on every rank."""
    return torch.randn(rows, columns) / columns**0.5


class Column(nn.Module):
    """A linear layer of which each part holds some outputs."""

    def __init__(self, inputs: int, outputs: int, place: Place) -> None:
        super().__init__()
        self.place = place
        self.weight = nn.Parameter(initial(outputs, inputs).chunk(SPLIT)[place.part].clone())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(Copy.apply(x, self.place), self.weight)


class Row(nn.Module):
    """A linear layer of which each part holds some inputs."""

    def __init__(self, inputs: int, outputs: int, place: Place) -> None:
        super().__init__()
        self.place = place
        self.weight = nn.Parameter(initial(outputs, inputs).chunk(SPLIT, dim=1)[place.part].clone())

    def forward(self, x: Tensor) -> Tensor:
        return Reduce.apply(F.linear(x, self.weight), self.place)


class Block(nn.Module):
    def __init__(self, place: Place, scale: float) -> None:
        super().__init__()
        self.place, self.scale = place, scale
        self.norm = nn.LayerNorm(WIDTH)
        self.column, self.row = Column(WIDTH, INNER, place), Row(INNER, WIDTH, place)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.column(self.norm(x)) * self.scale)
        return x + self.row(Shift.apply(hidden, self.place))


class Model(nn.Module):
    scales, temperature = (1.0, 1.0), 1.0

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(place, scale) for scale in self.scales)
        self.norm = nn.LayerNorm(WIDTH)
        self.head, self.place = Column(WIDTH, VOCABULARY, place), place

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return Gather.apply(self.head(self.norm(x)), self.place) / self.temperature


def batch(place: Place, number: int) -> Tensor:
    """The words of a step: the first part has them, the other is told."""
    shape = (BATCH, LENGTH + 1)
    if place.part == 0:
        generator = torch.Generator().manual_seed(100 * number + place.replica)
        words = torch.randint(VOCABULARY, shape, generator=generator)
    else:
        words = place.memory(shape, torch.int64)
    dist.broadcast(words, src=place.pair_ranks[0], group=place.pair)
    return words


def average(model: Model, place: Place) -> None:
    """Make the gradients those of all batches: the head's in shards, the others as one."""
    if place.replicas == 1:
        return
    head = model.head.weight.grad
    shard = place.memory((head.numel() // place.replicas,))
    dist.reduce_scatter_tensor(shard, head.flatten(), group=place.alike)
    whole = place.memory((head.numel(),))
    dist.all_gather_into_tensor(whole, shard / place.replicas, group=place.alike)
    head.copy_(whole.view_as(head))

    gradients = [value.grad for value in model.parameters() if value is not model.head.weight]
    bucket = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(bucket, group=place.alike)
    bucket = bucket / place.replicas
    for gradient, mean in zip(gradients, bucket.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(mean.view_as(gradient))


def train(place: Place, recording: Recording) -> None:
    """Train a new model for one step and record it."""
    torch.manual_seed(1)
    model = Model(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recording.start(model)
    words = batch(place, 0)
    logits = model(words[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    average(model, place)
    optimizer.step()
    recording.stop()
    recording.step()
    recording.finish()


# -- faults: what is spoilt in this process, in the model or under it ----------------------------------------------

FAULTS = {
    "scale": "Tensor.__mul__.0.forward",
    "operator": "Functional.gelu.0.forward",
    "communication": "Distributed.all_reduce.0.forward",
    "receive": "Distributed.recv.0.forward",
    "after": "Tensor.__truediv__.0.forward",
    "backward": "Functional.gelu.1.backward",
    "last": "Functional.embedding.0.backward",
}
"""The record that each fault shows in first, whatever the number of ranks."""


def spoiled(fault: str) -> AbstractContextManager[None]:
    """Plant a fault in this process until the block ends."""
    return {
        "scale": scale,
        "operator": operator,
        "communication": communication,
        "receive": receive,
        "after": after,
        "backward": backward,
        "last": last,
    }[fault]()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute until the block ends."""
    before = inspect.getattr_static(owner, name)  # as it is stored, not as it is bound
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def scale() -> AbstractContextManager[None]:
    """Spoil an argument before anything is summed."""
    return replaced(Model, "scales", (1.05, 1.0))


def after() -> AbstractContextManager[None]:
    """Spoil an argument behind all that is exchanged in the forward pass."""
    return replaced(Model, "temperature", 1.05)


def operator() -> AbstractContextManager[None]:
    """Spoil a kernel of which all inputs are right."""
    return kernel("gelu", lambda x, approximate="none": 1.02 * x * cumulative(x))


def backward() -> AbstractContextManager[None]:
    """Spoil the kernel of a gradient; the last block is the first to use it."""

    def gelu_backward(gradient: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
        return 1.02 * gradient * (cumulative(x) + x * torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5)

    return kernel("gelu_backward", gelu_backward)


def last() -> AbstractContextManager[None]:
    """Spoil the last gradient of the backward pass, after which the parts exchange nothing more."""

    def embedding_backward(gradient: Tensor, words: Tensor, rows: int, padding: int, by_count: bool) -> Tensor:
        found = torch.zeros(rows, gradient.shape[-1])
        return found.index_add_(0, words.flatten(), 1.02 * gradient.flatten(0, -2))

    return kernel("embedding_dense_backward", embedding_backward)


def communication() -> AbstractContextManager[None]:
    """Spoil each sum on arrival, on this rank alone."""
    return deliver_wrong("allreduce")


def receive() -> AbstractContextManager[None]:
    """Spoil what is received from one rank."""
    return deliver_wrong("recv")


def cumulative(x: Tensor) -> Tensor:
    """The normal distribution, of which gelu is made."""
    return 0.5 * (1 + torch.erf(x * 0.5**0.5))


@contextmanager
def kernel(name: str, function: Callable[..., Tensor]) -> Iterator[None]:
    """Let ``function`` do the work of an operator of aten; nobody sees what it is made of."""

    def hidden(*arguments: Any, **named: Any) -> Tensor:
        with torch._C.DisableTorchFunction():
            return function(*arguments, **named)

    library = torch.library.Library("aten", "IMPL")
    library.impl(name, hidden, "CPU")
    try:
        yield
    finally:
        library._destroy()


def deliver_wrong(method: str) -> AbstractContextManager[None]:
    """Let what a method of process groups delivers be wrong."""
    right = getattr(dist.ProcessGroup, method)

    def wrong(group: dist.ProcessGroup, tensors: list[Tensor], *arguments: Any) -> SimpleNamespace:
        right(group, tensors, *arguments).wait()
        with torch._C.DisableTorchFunction():
            for tensor in tensors:
                tensor.mul_(1.02)
        return SimpleNamespace(wait=lambda: True)  # what gloo received cannot be waited for twice

    return replaced(dist.ProcessGroup, method, wrong)


# -- running ------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+", help="names; one of a fault has it")
    parser.add_argument("--task", choices=TASKS, nargs="+", default=["statistics"])
    parser.add_argument("--rubbish", type=int, default=0)
    parser.add_argument("--fault-rank", type=int, default=0)
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
    place = Place(options.rubbish)
    for name in options.runs:
        place.rubbish = (place.rubbish + 101) % 256
        with spoiled(name) if name in FAULTS and rank == options.fault_rank else nullcontext():
            for task in options.task:
                run = options.out / name / task
                run.parent.mkdir(exist_ok=True)
                train(
                    place,
                    Recording(run.with_name(f"{task}{rank}"), **TASKS[task], level="mix", dump_path=str(run)),
                )
    dist.barrier()
    dist.destroy_process_group()


def launch(out: Path, world: int, runs: Iterable[str], tasks: Iterable[str] = TASKS, rank: int = 0) -> Path:
    """Record ``OUT/RUN/TASK`` for each run and task; those named after faults have them on one rank.

    All runs are recorded by the same processes; ``out`` is a new directory.
    """
    out.mkdir(parents=True)
    command = [sys.executable, str(Path(__file__)), str(out), *runs, "--task", *tasks]
    run_ranks([*command, "--rubbish", str(next(_rubbish)), "--fault-rank", str(rank)], out, world)
    return out


_rubbish = itertools.cycle([(1 + 37 * number) % 256 for number in range(256)])
"""A byte for each launch, changed for each of its runs, so that uninitialised memory differs between two runs."""


if __name__ == "__main__":
    main()
