"""Tiny training programs run so that every bit of their outcome is told.

``run(PROGRAMS["llama"], VARIANTS["bf16"])`` is an ``Outcome``; ``differences`` names what differs between two.
A recorder that changes no bit leaves none. The programs themselves are in ``support.programs.models``. Weights are random and seeded, nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

StepFunction = Callable[[nn.Module, int], Tensor]
Built = tuple[nn.Module, StepFunction, torch.optim.Optimizer]

VOCABULARY, BATCH, LENGTH, WIDTH, HEADS = 64, 2, 12, 32, 4
BATCHES = 6
"""The number of batches of a program: enough for three steps of two micro batches."""


class Recorder(Protocol):
    """A recorder around a training step."""

    def start(self, model: nn.Module) -> object: ...

    def stop(self) -> object: ...

    def step(self) -> object: ...


@dataclass(frozen=True)
class Program:
    """A training program: ``build()`` seeds everything and makes a model, its step and its optimizer."""

    name: str
    build: Callable[[], Built]
    needs: str | None = None
    """A package without which it cannot be built."""
    variants: tuple[str, ...] = ("plain", "bf16", "accumulate")
    """Names of the variants that it can be run in."""


@dataclass(frozen=True)
class Variant:
    """A way of running any program."""

    name: str
    micro: int = 1
    """Micro batches an optimizer step."""
    autocast: bool = False
    """True if the forward pass runs in bfloat16."""
    reentrant: bool | None = None
    """The kind of activation checkpointing; None is none."""

    def prepare(self, model: nn.Module) -> None:
        """Turn activation checkpointing on in a model that has it."""
        if self.reentrant is not None:
            inner = getattr(model, "module", model)  # of DistributedDataParallel
            inner.gradient_checkpointing_enable({"use_reentrant": self.reentrant})

    def forward(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of the forward pass."""
        return torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext()


@dataclass
class Outcome:
    """All that a training run leaves behind, of tensors the hashes; JSON takes ``dataclasses.asdict`` of it."""

    losses: list[str] = field(default_factory=list)
    """The bytes of each loss, one a micro batch."""
    gradients: list[dict[str, str]] = field(default_factory=list)
    """Of each step, as the optimizer finds them."""
    values: dict[str, str] = field(default_factory=dict)
    """Parameters and buffers after the last step."""
    optimizer: dict[str, str] = field(default_factory=dict)
    """The optimizer's state after the last step."""
    random: dict[str, str] = field(default_factory=dict)
    """The state of each generator after the last step."""
    modes: dict[str, str] = field(default_factory=dict)
    """Settings of the process after the last step."""

    def items(self) -> Iterator[tuple[str, str]]:
        """Everything, under names that ``differences`` can say."""
        micro = max(1, len(self.losses) // max(1, len(self.gradients)))
        losses = iter(enumerate(self.losses))
        for step, gradients in enumerate(self.gradients):
            for number, loss in itertools.islice(losses, micro):
                yield f"loss {number}", loss
            for name, digest in gradients.items():
                yield f"gradient of {name} in step {step}", digest
        for number, loss in losses:
            yield f"loss {number}", loss
        for name, digest in self.values.items():
            yield f"{name} after the last step", digest
        for name, digest in self.optimizer.items():
            yield f"optimizer's {name}", digest
        for name, digest in self.random.items():
            yield f"random state of {name}", digest
        for name, value in self.modes.items():
            yield f"mode {name}", value


def differences(a: Outcome, b: Outcome) -> list[str]:
    """Return the differences of two outcomes, step by step, then in the end, without tolerance."""
    first, second = dict(a.items()), dict(b.items())
    return [
        f"{name}: {first.get(name, 'missing')} and {second.get(name, 'missing')}"
        for name in first | second
        if first.get(name) != second.get(name)
    ]


def raw(tensor: Tensor) -> bytes:
    """The elements of a tensor in order, byte for byte.

    Read from its memory and by no operator, for a recorder may be listening.
    """
    with torch._C.DisableTorchFunction():
        if tensor.is_sparse:
            return raw(tensor._indices()) + raw(tensor._values())
        tensor = getattr(tensor, "_local_tensor", tensor)
        assert tensor.device.type == "cpu" and not tensor.is_neg() and not tensor.is_conj()
        shape, strides, width = tuple(tensor.shape), tensor.stride(), tensor.element_size()
        if 0 in shape:
            return b""
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        memory = ctypes.string_at(tensor.data_ptr(), span * width)
    return np.ndarray(shape, f"V{width}", memory, 0, tuple(stride * width for stride in strides)).tobytes()


def digest(value: object) -> str:
    """A text that differs where a bit of a tensor, its dtype or its shape differs."""
    if not isinstance(value, Tensor):
        return repr(value)
    with torch._C.DisableTorchFunction():
        kind = f"{value.dtype} {list(value.shape)}"
    return f"{kind} {hashlib.sha256(raw(value)).hexdigest()}"


def random_states() -> dict[str, str]:
    """The state of each random number generator."""
    states = {"torch": raw(torch.get_rng_state()), "python": repr(random.getstate()).encode()}
    kind, keys, *rest = np.random.get_state()
    states["numpy"] = kind.encode() + keys.tobytes() + repr(rest).encode()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}


def modes(model: nn.Module) -> dict[str, str]:
    """The settings that a recorder might forget to put back."""
    return {
        "grad": str(torch.is_grad_enabled()),
        "inference": str(torch.is_inference_mode_enabled()),
        "autocast": str(torch.is_autocast_cpu_enabled()),
        "dtype": str(torch.get_default_dtype()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "threads": str(torch.get_num_threads()),
        "training": str(sorted(name for name, module in model.named_modules() if module.training)),
        "trained": str(sorted(name for name, value in model.named_parameters() if value.requires_grad)),
    }


def train(
    model: nn.Module,
    step_function: StepFunction,
    optimizer: torch.optim.Optimizer,
    variant: Variant,
    steps: int = 3,
    recorder: Recorder | None = None,
) -> Outcome:
    """Train what was built, with the recorder around each step."""
    outcome = Outcome()
    variant.prepare(model)
    for step in range(steps):
        if recorder:
            recorder.start(model)
        for micro in range(variant.micro):
            with variant.forward():
                loss = step_function(model, step * variant.micro + micro)
            outcome.losses.append(raw(loss).hex())
            if variant.micro > 1:
                loss = loss / variant.micro
            loss.backward()
        with torch._C.DisableTorchFunction():
            outcome.gradients.append({name: digest(value.grad) for name, value in model.named_parameters()})
        optimizer.step()
        if recorder:
            recorder.stop()
        optimizer.zero_grad()
        if recorder:
            recorder.step()
    outcome.values = {name: digest(value) for name, value in model.named_parameters()}
    outcome.values |= {name: digest(value) for name, value in model.named_buffers()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            outcome.optimizer[f"{key} of {name}"] = digest(value)
    outcome.random = random_states()
    outcome.modes = modes(model)
    return outcome


def seed(number: int = 0) -> None:
    """Seed every generator."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def run(program: Program, variant: Variant, steps: int = 3, recorder: Recorder | None = None) -> Outcome:
    """Build a program and train it."""
    return train(*program.build(), variant, steps, recorder)


BOTH = ("reentrant", "nonreentrant")
PROGRAMS: dict[str, Program] = {}
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("plain"),
        Variant("bf16", autocast=True),
        Variant("accumulate", micro=2),
        Variant("reentrant", reentrant=True),
        Variant("nonreentrant", reentrant=False),
    )
}


def program(needs: str | None = None, checkpoints: tuple[str, ...] = ()) -> Callable[[Callable[[], Built]], None]:
    """Put a function that builds into ``PROGRAMS``, under its name; ``checkpoints`` are further variants."""

    def add(make: Callable[[], Built]) -> None:
        def build() -> Built:
            if needs:
                importlib.import_module(needs)
            seed()
            return make()

        PROGRAMS[make.__name__] = Program(make.__name__, build, needs, Program.variants + checkpoints)

    return add


@cache
def lstm_runs_in_bf16() -> bool:
    """True where torch has a kernel for it: those of oneDNN take a processor with AVX-512, or a later one."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(2, 2)(torch.ones(1, 1, 2))[0].sum().backward()
    except RuntimeError:
        return False
    return True


def cases() -> list[tuple[Program, Variant]]:
    """Every program in every variant that it has, and that torch can run on this processor."""
    found = [(program, VARIANTS[name]) for program in PROGRAMS.values() for name in program.variants]
    unable = ("lstm", "bf16") if not lstm_runs_in_bf16() else None
    return [(program, variant) for program, variant in found if (program.name, variant.name) != unable]


# Batches


def words(length: int = LENGTH) -> list[Tensor]:
    return [torch.randint(3, VOCABULARY, (BATCH, length)) for _ in range(BATCHES)]


def reals(*shape: int) -> list[Tensor]:
    return [torch.randn(BATCH, *shape) for _ in range(BATCHES)]


def classes(count: int) -> list[Tensor]:
    return [torch.randint(0, count, (BATCH,)) for _ in range(BATCHES)]


def padded(batches: list[Tensor]) -> list[dict[str, Tensor]]:
    """Arguments of a language model: the last sequence ends early."""
    masks = torch.ones(BATCH, LENGTH, dtype=torch.long)
    masks[-1, LENGTH - 3 :] = 0
    return [
        {"input_ids": batch, "attention_mask": masks, "labels": batch.masked_fill(masks == 0, -100)}
        for batch in batches
    ]


def fit(inputs: list[Tensor], targets: list[Tensor], loss: Callable[..., Tensor]) -> StepFunction:
    """The step that measures what the model makes of an input against its target."""
    return lambda model, step: loss(model(inputs[step % BATCHES]), targets[step % BATCHES])


def next_word(logits: Tensor, batch: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
