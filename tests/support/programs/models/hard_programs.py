"""Programs that are hard on a recorder."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from support.programs.training import (
    BATCHES,
    HEADS,
    LENGTH,
    VOCABULARY,
    WIDTH,
    Built,
    classes,
    fit,
    next_word,
    program,
    reals,
    words,
)


@dataclass
class State:
    hidden: Tensor
    history: list[Tensor]
    scale: float
    note: str | None = None


class Sides(NamedTuple):
    left: Tensor
    right: Tensor


class Reading(nn.Module):
    """A dict in, which it writes into; an ordered dict out, that holds the same tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.linear = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: dict[str, Any], *, noise: float = 0.0) -> OrderedDict[str, Any]:
        x = self.linear(self.embed(batch["words"])) + noise
        x.kind = "read"
        batch["seen"] = [x, {"mean": x.mean(), "nothing": None}]
        return OrderedDict(hidden=x, parts=[x[:, :6], x[:, 6:]], again=x)


class Thinking(nn.Module):
    """Changes the object it was given, and the tensors in it, and hands back that object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.relu = nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.1, inplace=True)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, state: State) -> State:
        x = state.hidden
        y = self.linear(x)
        y.add_(x)
        y[:, 0].mul_(0.5)
        y.view(-1)[::7] += 0.25
        self.relu(self.dropout(y))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean((0, 1)), alpha=0.1)
        state.history.append(y)
        state.hidden = y + x + y * state.scale
        state.note = "thought"
        return state


class Parting(nn.Module):
    """A generator in, which can be gone through once; a named tuple and a number out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, parts: Iterator[Tensor], mean: Tensor) -> tuple[Sides, int]:
        whole = torch.cat([self.linear(part) for part in parts], 1)
        left, right = (whole - mean).unbind(0)
        return Sides(left, right), len(left)


class Answering(nn.Module):
    """A named tuple and a tuple in, an output class of transformers out."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, sides: Sides, others: tuple[Any, ...]) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        count, (first, *rest), note = others
        x = torch.stack(sides)
        assert note == "thought" and count == x.shape[1]
        x = x + first + sum(rest)
        return BaseModelOutput(last_hidden_state=self.head(x), hidden_states=(x, first))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reading, self.parting, self.answering = Reading(), Parting(), Answering()
        self.thinking = nn.ModuleList([Thinking(), Thinking()])

    def forward(self, batch: dict[str, Any]) -> Any:
        read = self.reading(batch, noise=np.random.normal(scale=0.01))
        assert read["hidden"] is read["again"] is batch["seen"][0] and read["again"].kind == "read"
        state = State(read["hidden"].clone(), history := [read["hidden"]], 0.3)
        for module in self.thinking:
            assert module(state) is state
        assert state.history is history and len(history) == 3
        if random.random() < 0.5:
            state.hidden = state.hidden.transpose(1, 2).contiguous().transpose(1, 2)
        sides, count = self.parting((part for part in state.hidden.split(4, 1)), batch["seen"][1]["mean"])
        return self.answering(sides, others=(count, history, state.note))


@program(needs="transformers")
def nested() -> Built:
    """Modules that hand each other nested values and change them in place."""
    model, batches = Nested(), words()

    def step(model: nn.Module, number: int) -> Tensor:
        batch = batches[number % BATCHES]
        out = model({"words": batch})
        return next_word(out.last_hidden_state, batch) + out["hidden_states"][1].square().mean()

    return model, step, torch.optim.AdamW(model.parameters(), lr=1e-2)


class Power(torch.autograd.Function):
    """Two outputs, one without a gradient; an argument that is no tensor; a backward of many operators."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, power: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.power = power
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        ctx.set_materialize_grads(False)
        return x.pow(power) * weight, positive

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, True, False)
        slope = ctx.power * x.pow(ctx.power - 1) * weight
        return gradient * slope, (gradient * x.pow(ctx.power)).sum(dim=(0, 1)), None


class Clamp(torch.autograd.Function):
    """Changes its argument in place, and keeps its context in the newer way."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp_(-1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.where(ctx.saved_tensors[0].abs() < 1, gradient, 0.1 * gradient)


class Linear(torch.autograd.Function):
    """Reads attributes of its weight and adds to one of them, as fused gradient accumulation does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter) -> Tensor:
        assert isinstance(weight, nn.Parameter) and weight.is_leaf
        ctx.save_for_backward(x, weight)
        return torch.matmul(x, weight.t()) * weight.factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradient * weight.factor
        summed = torch.einsum("blo,bli->oi", gradient, x.to(gradient.dtype))
        weight.main_grad.add_(summed)
        return torch.matmul(gradient, weight.to(gradient.dtype)), summed.to(weight.dtype)


class Again(torch.autograd.Function):
    """Computes its forward again in backward, with a graph and an engine run of its own."""

    @staticmethod
    def forward(ctx: Any, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        ctx.function, ctx.x = function, x
        return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        x = ctx.x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad


class Customized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scale = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.rand(WIDTH))
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / math.sqrt(WIDTH))
        self.register_buffer("main_grad", torch.zeros(WIDTH, WIDTH))
        self.weight.main_grad, self.weight.factor = self.main_grad, 0.7
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Tensor) -> Tensor:
        x = F.dropout(self.embed(batch), 0.1)
        y, positive = Power.apply(x, self.scale, 3)
        y = Clamp.apply(y + x)
        y = Linear.apply(y, self.weight) + torch.where(positive, y, x)
        y = y + Again.apply(lambda z: F.gelu(self.inner(z)).float(), y)
        return self.head(y)


@program()
def custom_function() -> Built:
    """Functions with a backward of their own."""
    model, batches = Customized(), words()
    return model, fit(batches, batches, next_word), torch.optim.AdamW(model.parameters(), lr=1e-2)


class Composite(nn.Module):
    """One of many: values used several times, at different depths, so that the order of sums is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, dropout=0.1, batch_first=True)
        self.gain = nn.Parameter(torch.rand(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        x = F.dropout(self.embed(batch), 0.1, self.training)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        attended, weights = self.attention(x, x, x, attn_mask=mask)
        x = self.encoder(x + attended, src_mask=mask, is_causal=True)
        x = self.reuse(x * self.gain) + x * self.gain.exp()
        x = self.index(x) + self.reduce(x)
        return self.head(F.normalize(x, dim=-1)), weights

    def reuse(self, x: Tensor) -> Tensor:
        """One value in many places."""
        left, right = x.chunk(2, -1)
        first, _, third = x.split([8, 16, 8], -1)
        scores = torch.einsum("bld,bmd->blm", left, right).softmax(-1)
        y = torch.cat([first, third, first * third, left[..., :8]], -1)
        y = torch.matmul(scores, x) + x * x + 0.3 * x * torch.sigmoid(x) - x.tanh() * y
        return torch.stack([y, x, y]).mean(0) + 2 / (1 + x.exp())

    def index(self, x: Tensor) -> Tensor:
        """Reading and writing of places, of one place twice."""
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        y[x > 1] = 0.5
        y = y + x[:, [2, 0, 2] * (LENGTH // 3)] + x.roll(1, 1) + x.flip(-1)
        y.index_add_(1, torch.tensor([1, 1, 3]), x[:, :3])
        best = x.topk(3, dim=1)
        ordered, order = x.sort(dim=1)
        y = y.scatter_add(1, best.indices, best.values) + 0.1 * ordered.gather(1, order)
        return y + x.max(dim=1, keepdim=True).values + x[:, :0].sum()

    def reduce(self, x: Tensor) -> Tensor:
        """Sums, and values that are complex, double or whole."""
        y = x.cumsum(1) / torch.arange(1, LENGTH + 1).view(-1, 1)
        y = y + torch.fft.irfft(torch.fft.rfft(x.float()) * 0.5j)
        y = y + x.double().logsumexp(-1, keepdim=True).to(x.dtype) + x.std(1, keepdim=True)
        return y.masked_fill(torch.isnan(y), 0) + x.expand(3, -1, -1, -1).permute(1, 2, 3, 0).sum(-1)


@program()
def composite() -> Built:
    model, batches = Composite(), words()

    def step(model: nn.Module, number: int) -> Tensor:
        batch = batches[number % BATCHES]
        logits, weights = model(batch)
        flat = logits.reshape(-1, VOCABULARY)
        loss = F.cross_entropy(flat, batch.flatten(), ignore_index=5, label_smoothing=0.1)
        return loss + weights.square().mean() + 1e-3 * logits.logsumexp(-1).square().mean()

    return model, step, torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.second = parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.third, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        def unpack(packed: tuple[torch.dtype, Tensor]) -> Tensor:
            return packed[1].to(packed[0])

        x = F.dropout(self.first(x).tanh(), 0.1)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: (saved.dtype, saved.double()), unpack):
            y = F.gelu(self.second(x))
        y.register_hook(lambda gradient: gradient * 0.7)
        y.retain_grad()
        with torch.device("cpu"):
            y = y + torch.full((WIDTH,), 0.1)
        return self.head(self.third(y) + x)


@program()
def user_hooks() -> Built:
    """Hooks of the user's own, that change what goes through; weights that are computed."""

    def halve(value: Tensor) -> None:
        value.grad.mul_(0.5)

    model = Hooked()
    model.first.register_forward_pre_hook(lambda _, inputs, names: ((inputs[0] * 0.9,), names), with_kwargs=True)
    model.second.register_forward_hook(lambda _, __, output: output.clamp(-1, 1))
    model.third.register_full_backward_hook(lambda _, inputs, __: tuple(value * 1.1 for value in inputs))
    model.third.register_full_backward_pre_hook(lambda _, outputs: tuple(value * 0.9 for value in outputs))
    model.head.weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    model.head.bias.register_post_accumulate_grad_hook(halve)
    step = fit(reals(WIDTH), classes(5), F.cross_entropy)
    return model, step, torch.optim.SGD(model.parameters(), lr=0.1)


@program()
def penalty() -> Built:
    """A loss of gradients: the backward pass has a graph, and two passes go through one graph."""
    model = nn.Sequential(
        nn.Linear(WIDTH, 48), nn.Tanh(), nn.Dropout(0.1), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 5)
    )
    inputs, targets = reals(WIDTH), classes(5)

    def step(model: nn.Module, number: int) -> Tensor:
        x = inputs[number % BATCHES].clone().requires_grad_()
        loss = F.cross_entropy(model(x), targets[number % BATCHES])
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + slope.square().sum()

    return model, step, torch.optim.Adam(model.parameters(), lr=1e-2)


@program()
def functorch() -> Built:
    """Gradients of each sample, by transforms whose tensors have no values of their own."""
    model = nn.Sequential(nn.Linear(WIDTH, 48), nn.Tanh(), nn.Linear(48, 5))
    inputs, targets = reals(WIDTH), classes(5)

    def step(model: nn.Module, number: int) -> Tensor:
        def loss(parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
            logits = torch.func.functional_call(model, parameters, (x,))
            return F.cross_entropy(F.dropout(logits, 0.1), target)

        x, target = inputs[number % BATCHES], targets[number % BATCHES]
        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
        gradients = each(dict(model.named_parameters()), x, target)
        return F.cross_entropy(model(x), target) + sum(value.square().sum() for value in gradients.values())

    return model, step, torch.optim.SGD(model.parameters(), lr=1e-3)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, sparse=True)
        self.bag = nn.EmbeddingBag(VOCABULARY, WIDTH, sparse=True, mode="sum")
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, batch: Tensor) -> Tensor:
        return self.head(F.dropout(self.embed(batch).mean(1), 0.1) + self.bag(batch))


@program()
def sparse() -> Built:
    """Gradients that are sparse."""
    model = Sparse()
    return model, fit(words(), classes(5), F.cross_entropy), torch.optim.SGD(model.parameters(), lr=0.01)
