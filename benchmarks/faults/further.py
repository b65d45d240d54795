"""Three further programs, two faults and two controls each: images, language, sound.

Their controls make updates of gradients that are zero in theory, pass micro batches backward one by one, and
write a recurrent layer out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import nets
from faults.cases import Cases, Line, Training
from faults.controls import threads

FURTHER = Cases()
case = FURTHER.case
WORDS, WIDTH = 32, 16


def trained(
    model: nn.Module,
    loss: Callable[[], Tensor],
    count: int = 2,
    fused: bool = False,
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Training:
    """Return a program that trains a model with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False if not fused else None, fused=fused)

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return Training(model, step, count, context)


# -- images -----------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A layer of a transformer, whose keys have a bias."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(24), nn.LayerNorm(24)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.up, self.down, self.way = nn.Linear(24, 48), nn.Linear(48, 24), way

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.first(x)).view(batch, length, 3, 4, 6).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        if self.way == "fused":
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-1, -2) * (24 if self.way == "wide" else 6) ** -0.5
            mixed = scores.softmax(-1) @ value
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, 24))
        return x + cast(Tensor, self.down(F.gelu(self.up(self.second(x)))))


class Images(nn.Module):
    """A classifier of images."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.place = nn.Conv2d(3, 24, 4, 4), nn.Parameter(torch.randn(1, 16, 24) / 10)
        self.blocks = nn.ModuleList(Block("" if way == "wide" and number != 1 else way) for number in range(3))
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x)
        return cast(Tensor, self.head(self.norm(x).mean(1)))


def images(way: str = "", count: int = 2, fused: bool = False, smoothing: float = 0.1) -> Training:
    model, batch, labels = Images(way), nets.reals(4, 3, 16, 16), torch.tensor([1, 2, 3, 4])
    return trained(model, lambda: F.cross_entropy(model(batch), labels, label_smoothing=smoothing), count, fused)


@case("image-scale", "A layer scales attention by its whole width.", Line(op="mul", place=r"blocks\.1\."))
def image_scale(wrong: bool) -> Training:
    return images("wide" if wrong else "")


@case("image-smoothing", "Labels are not smoothed.", Line(op="cross_entropy"))
def image_smoothing(wrong: bool) -> Training:
    return images(smoothing=0.0 if wrong else 0.1)


@case("image-attention", "Attention is fused; gradients of the biases of keys are zero in theory.")
def image_attention(other: bool) -> Training:
    return images("fused" if other else "")


@case("image-optimizer", "AdamW is fused for four steps.")
def image_optimizer(other: bool) -> Training:
    return images("", 4, other)


# -- language ---------------------------------------------------------------------------------------------


class Language(nn.Module):
    """A model of language with rotary positions, whose head is the embedding."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.norm, self.last = nn.Embedding(WORDS, WIDTH), nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head, self.way = nn.Linear(WIDTH, WORDS, bias=False), way
        self.head.weight = self.words.weight

    def turned(self, x: Tensor) -> Tensor:
        """Rotate pairs of elements by their positions."""
        angles = torch.arange(x.shape[1])[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        if self.way == "interleaved":
            one, two = x[..., ::2], x[..., 1::2]
        else:
            one, two = x.chunk(2, -1)
        both = one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()
        return torch.stack(both, -1).flatten(-2) if self.way == "interleaved" else torch.cat(both, -1)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        held = self.norm(x)
        query, key, value = self.turned(self.query(held)), self.turned(self.key(held)), self.value(held)
        if self.way == "fused":
            parts = [each[:, None] for each in (query, key, value)]
            mixed = F.scaled_dot_product_attention(*parts, is_causal=True)[:, 0]
        else:
            mask = torch.full((words.shape[1], words.shape[1]), float("-inf")).triu(1)
            mixed = (query @ key.transpose(1, 2) / 4 + mask).softmax(-1) @ value
        return cast(Tensor, self.head(self.last(x + self.out(mixed))))


def language(way: str = "", parts: int = 1, share: float = 1.0, count: int = 2) -> Training:
    model, batch = Language(way), nets.words(4, 11) % WORDS
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step(number: int) -> None:
        optimizer.zero_grad()
        for part in batch.chunk(parts):
            loss = F.cross_entropy(model(part[:, :-1]).reshape(-1, WORDS), part[:, 1:].reshape(-1))
            (loss / share).backward()
        optimizer.step()

    return Training(model, step, count)


@case(
    "language-rotary",
    "Rotary positions turn neighbours instead of halves.",
    Line(op="getitem|chunk|stack|cat|flatten|mul", text="turned"),
)
def language_rotary(wrong: bool) -> Training:
    return language("interleaved" if wrong else "")


@case(
    "language-parts",
    "The losses of micro batches are added up, not averaged.",
    Line(op="div"),
    Line(text="loss / share|loss"),
)
def language_parts(wrong: bool) -> Training:
    return language(parts=4, share=1 if wrong else 4, count=1)


@case("language-micro", "Four micro batches are passed backward one by one.")
def language_micro(other: bool) -> Training:
    return language(parts=4, share=4) if other else language()


@case("language-attention", "Causal attention is fused, for three steps.")
def language_attention(other: bool) -> Training:
    return language("fused" if other else "", count=3)


# -- sound ------------------------------------------------------------------------------------------------


class Sound(nn.Module):
    """A classifier of sounds by their spectrum: convolutions, norms and a recurrent layer."""

    def __init__(self, periodic: bool = True, place: int = -1, by_hand: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Conv1d(8 if n else 1, 8, 5, stride=2, padding=2) for n in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(3))
        self.memory, self.head = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 5)
        self.periodic, self.place = periodic, place
        if by_hand:
            self.memory.forward = self.remembered  # type: ignore[method-assign, assignment]

    def remembered(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return what the recurrent layer does, one step after the other."""
        layer = self.memory
        hidden, cell = torch.zeros(x.shape[0], 8), torch.zeros(x.shape[0], 8)
        outputs = []
        for number in range(x.shape[1]):
            gates = F.linear(x[:, number], layer.weight_ih_l0, layer.bias_ih_l0)
            gates = gates + F.linear(hidden, layer.weight_hh_l0, layer.bias_hh_l0)
            taken, kept, new, shown = gates.chunk(4, 1)
            cell = torch.sigmoid(kept) * cell + torch.sigmoid(taken) * torch.tanh(new)
            hidden = torch.sigmoid(shown) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs, 1), (hidden[None], cell[None])

    def forward(self, x: Tensor) -> Tensor:
        window = torch.hann_window(32, periodic=self.periodic)
        x = torch.log1p(torch.stft(x, 32, 16, window=window, return_complex=True).abs()).mean(1, keepdim=True)
        for layer, norm in zip(self.layers, self.norms):
            x = F.leaky_relu(norm(layer(x)), 0.2)
        outputs, _ = self.memory(x.transpose(1, 2))
        return cast(Tensor, self.head(outputs[:, self.place]))


def sound(model: Sound, count: int = 2, number: int = 1) -> Training:
    batch, labels = nets.reals(4, 512), torch.tensor([0, 1, 2, 3])
    return trained(model, lambda: F.cross_entropy(model(batch), labels), count, context=lambda: threads(number))


@case("sound-window", "The window of the spectrum is symmetric.", Line(op="stft|hann"))
def sound_window(wrong: bool) -> Training:
    return sound(Sound(periodic=not wrong))


@case(
    "sound-state",
    "The first state of the recurrent layer is used instead of the last.",
    Line(op="getitem|select"),
    Line(text="outputs"),
)
def sound_state(wrong: bool) -> Training:
    return sound(Sound(place=0 if wrong else -1))


@case("sound-threads", "Two threads; the biases in front of norms have gradients that are zero in theory.")
def sound_threads(other: bool) -> Training:
    return sound(Sound(), 3, 2 if other else 1)


@case("sound-loop", "The recurrent layer is written out as a loop over time.")
def sound_loop(other: bool) -> Training:
    return sound(Sound(by_hand=other))
