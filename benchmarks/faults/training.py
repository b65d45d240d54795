"""Known faults of training, each put into a few steps of a tiny model.

Changes that happen below the functions of torch, such as a reduction by a library of collectives, are made
through numpy: no recorder sees the call, only the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import nets
from faults.cases import Cases, Line, Training

TRAINING = Cases()
known_fault = TRAINING.case

GRADIENT = (
    Line(op=r"^Torch\._foreach_norm|^Torch\._foreach_lerp_|^Tensor\.lerp_", row=r"\.input\."),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\bgrad"),
)
"""Lines on a gradient that the backward pass did not write so: the first call that reads it, or its phase."""


def trained(**settings: Any) -> Any:
    """Return a Llama for training."""
    return nets.llama(**settings).train()


def adamw(model: nn.Module, **settings: Any) -> torch.optim.AdamW:
    """Return an AdamW that computes a parameter after the other."""
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, "foreach": False, **settings})


def loss_of(model: Any, batch: Tensor) -> Tensor:
    """Return the mean loss of predicting each next token."""
    logits = model(input_ids=batch).logits[:, :-1]
    return F.cross_entropy(logits.reshape(-1, nets.WORDS), batch[:, 1:].reshape(-1))


def plain_step(model: Any, optimizer: torch.optim.Optimizer, batch: Tensor | None = None) -> Callable[[int], None]:
    """Return a training step on one batch, the same at each step."""
    words = nets.words() if batch is None else batch

    def step(number: int) -> None:
        loss_of(model, words).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def scale_unseen(parameters: Iterable[Tensor], factor: float) -> None:
    """Multiply all gradients as a library of collectives does: by no call that a recorder sees."""
    for parameter in parameters:
        if parameter.grad is not None:
            values = parameter.grad.numpy()
            values *= factor


@known_fault(
    "T01",
    "Gradients are accumulated as the mean of the means of micro batches of different lengths.",
    Line(op=r"(__truediv__|div)\.[0-3]\.forward"),
    Line(op="cross_entropy"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\bloss"),
)
def mean_of_means(wrong: bool) -> Training:
    model = trained()
    optimizer = adamw(model)
    lengths = (24, 6, 24, 9)
    total = sum(lengths)

    def step(number: int) -> None:
        for length in lengths:
            batch = nets.words(2, 25)[number : number + 1, : length + 1]
            logits = model(input_ids=batch).logits[0, :-1]
            loss = F.cross_entropy(logits, batch[0, 1:], reduction="sum")
            loss = loss / (length * len(lengths) if wrong else total)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


@known_fault("T03", "Gradients of two ranks are summed instead of averaged.", *GRADIENT)
def summed_gradients(wrong: bool) -> Training:
    model = trained()
    optimizer = adamw(model)

    def step(number: int) -> None:
        loss_of(model, nets.words()).backward()
        if wrong:
            scale_unseen(model.parameters(), 2)
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


class OwnAdam(torch.optim.Optimizer):
    """Adam that adds eps to the root of the second moment before or after its bias is corrected."""

    def __init__(self, parameters: Iterable[Tensor], early: bool, lr: float = 1e-3, eps: float = 1e-6) -> None:
        super().__init__(parameters, {"lr": lr, "eps": eps, "betas": (0.9, 0.999)})
        self.early = early

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters."""
        for group in self.param_groups:
            (one, two), lr, eps = group["betas"], group["lr"], group["eps"]
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(step=0, first=torch.zeros_like(parameter), second=torch.zeros_like(parameter))
                state["step"] += 1
                first, second, grad = state["first"], state["second"], parameter.grad
                first.mul_(one).add_(grad, alpha=1 - one)
                second.mul_(two).addcmul_(grad, grad, value=1 - two)
                root = math.sqrt(1 - two ** state["step"])
                scale = second.sqrt().add_(eps) / root if self.early else (second.sqrt() / root).add_(eps)
                parameter.addcdiv_(first, scale, value=-lr / (1 - one ** state["step"]))


@known_fault(
    "T05",
    "Adam adds eps before it corrects the bias of the second moment.",
    Line(op=r"add_|truediv|addcdiv_|sqrt", place="optimizer"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\bparam"),
)
def early_eps(wrong: bool) -> Training:
    model = trained()
    return Training(model, plain_step(model, OwnAdam(model.parameters(), wrong)))


@known_fault(
    "T07",
    "The weights of norms decay, too.",
    Line(op=r"\.mul_", place="optimizer"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*(norm|decay)"),
)
def decayed_norms(wrong: bool) -> Training:
    model = trained()
    norms = [parameter for name, parameter in model.named_parameters() if "norm" in name]
    others = [parameter for name, parameter in model.named_parameters() if "norm" not in name]
    groups = [
        {"params": others, "weight_decay": 0.1},
        {"params": norms, "weight_decay": 0.1 if wrong else 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=False)
    return Training(model, plain_step(model, optimizer))


@known_fault(
    "T09",
    "Gradients are clipped before the scale of the loss is taken out.",
    Line(op=r"_foreach_norm|\.div_|_foreach_mul_|vector_norm|clamp|reciprocal|Torch\.stack"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*(clip|unscal)"),
)
def early_clipping(wrong: bool) -> Training:
    model = trained()
    optimizer = adamw(model)

    def unscale() -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(1024)

    def step(number: int) -> None:
        (loss_of(model, nets.words()) * 1024).backward()
        if not wrong:
            unscale()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if wrong:
            unscale()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


@known_fault(
    "T11",
    "Parameters in bfloat16 have no copy in float32, and lose small updates.",
    Line(place="optimizer", text=r"(?i)bfloat16|dtype|precision|unchanged"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*(unchanged|bfloat16|dtype|lost)"),
)
def lost_updates(wrong: bool) -> Training:
    model = trained().bfloat16()
    parameters = list(model.parameters())
    masters = parameters if wrong else [nn.Parameter(one.detach().float()) for one in parameters]
    optimizer = torch.optim.AdamW(masters, lr=1e-5, foreach=False)

    def step(number: int) -> None:
        loss_of(model, nets.words()).backward()
        if not wrong:
            for master, parameter in zip(masters, parameters):
                assert parameter.grad is not None
                master.grad = parameter.grad.float()
        optimizer.step()
        if not wrong:
            with torch.no_grad():
                for master, parameter in zip(masters, parameters):
                    parameter.copy_(master)
        model.zero_grad()

    return Training(model, step, 3)


@known_fault(
    "T13",
    "The labels are shifted by the data loader, and shifted again by the loss.",
    Line(op=r"Functional\.(pad|cross_entropy)|Tensor\.roll"),
    Line(row=r"\.input\.", text=r"ForCausalLMLoss, .*labels"),
    Line(row="labels"),
    Line(text=r"(?i)^(ladder|phase|rung|condition)\S* .*\b(loss|batch|label)"),
)
def twice_shifted(wrong: bool) -> Training:
    model = trained()
    optimizer = adamw(model)

    def step(number: int) -> None:
        batch = nets.words()
        labels = batch.roll(-1, 1) if wrong else batch
        model(input_ids=batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


@known_fault(
    "T15",
    "The gradient of the embeddings is scaled by the frequency of each token.",
    Line(op="embedding|embed_tokens"),
    Line(place="embed_tokens"),
)
def scaled_by_frequency(wrong: bool) -> Training:
    model = trained()
    model.model.embed_tokens.scale_grad_by_freq = wrong
    return Training(model, plain_step(model, adamw(model)))


@known_fault(
    "T17",
    "Gradients are not set to zero after a step.",
    *(Line(line.op, line.place, line.row, line.text, step=1) for line in GRADIENT),
)
def stale_gradients(wrong: bool) -> Training:
    model = trained()
    optimizer = adamw(model)

    def step(number: int) -> None:
        loss_of(model, nets.words()).backward()
        optimizer.step()
        if not wrong:
            optimizer.zero_grad()

    return Training(model, step)
