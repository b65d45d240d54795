"""Faults in programs that were put aside when they were written, to be scored once.

They are not among the cases of the public list, which ``make.py bench faults`` runs without names; the
name ``frozen`` chooses all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import nets
from faults.cases import SEED, Cases, Forward, Line, Training
from faults.training import GRADIENT, adamw

FROZEN = Cases()
frozen_fault = FROZEN.case


class Scan(nn.Module):
    """A selective state space layer, which keeps its last state to generate further tokens.

    Attributes:
        precision: The dtype in which the scan adds up its state.
        state: The state to start from, of shape (batch, inner, size).
    """

    state: Tensor

    def __init__(self, width: int, rows: int = 2, size: int = 8, rank: int = 4) -> None:
        super().__init__()
        inner = 2 * width
        self.parts = [rank, size, size]
        self.precision = torch.float32
        self.inward = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select = nn.Linear(inner, sum(self.parts), bias=False)
        self.delta = nn.Linear(rank, inner)
        self.log_decay = nn.Parameter(torch.arange(1.0, size + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.outward = nn.Linear(inner, width, bias=False)
        self.register_buffer("state", torch.zeros(rows, inner, size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output for a batch of shape (batch, length, width)."""
        wide, length = self.precision, hidden.shape[1]
        values, gate = self.inward(hidden).chunk(2, -1)
        values = F.silu(self.conv(values.transpose(1, 2))[..., :length].transpose(1, 2))
        low, taken, given = self.select(values).split(self.parts, -1)
        delta = F.softplus(self.delta(low)).to(wide)
        decay = torch.exp(delta.unsqueeze(-1) * -self.log_decay.to(wide).exp())
        added = (delta * values.to(wide)).unsqueeze(-1) * taken.to(wide).unsqueeze(2)
        shown = given.to(wide).unsqueeze(2)
        state, outputs = self.state.to(wide), []
        for place in range(length):
            state = decay[:, place] * state + added[:, place]
            outputs.append((state * shown[:, place]).sum(-1))
        self.state = state.detach()
        result = torch.stack(outputs, 1).to(hidden.dtype) + values * self.skip
        return self.outward(result * F.silu(gate))

    def reset(self) -> None:
        """Start from an empty state."""
        self.state = torch.zeros_like(self.state)


class ScanBlock(nn.Module):
    """A layer norm and a scan, beside a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(width), Scan(width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the block's output."""
        return hidden + self.mixer(self.norm(hidden))


class ScanModel(nn.Module):
    """A language model of two scans."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embed = nn.Embedding(nets.WORDS, width)
        self.layers = nn.ModuleList([ScanBlock(width), ScanBlock(width)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, nets.WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        """Return the logits of the next tokens."""
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


@frozen_fault(
    "W01",
    "A scan adds up its state in bfloat16, the dtype of the model, instead of float32.",
    Line(place=r"layers\.1\.mixer"),
)
def rounded_state(wrong: bool) -> Forward:
    model = ScanModel().bfloat16()
    if wrong:
        model.layers[1].mixer.precision = torch.bfloat16  # type: ignore[union-attr]
    return Forward(model, {"words": nets.words(2, 32)})


@frozen_fault(
    "W02",
    "Scans start from the state that the batch before left behind.",
    Line(place=r"layers\.0\.mixer", step=1),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\b(buffer|state)"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\b(buffer|state)", step=1),
)
def kept_state(wrong: bool) -> Training:
    model = ScanModel()
    optimizer = adamw(model)

    def step(number: int) -> None:
        if not wrong:
            for layer in model.layers:
                layer.mixer.reset()  # type: ignore[union-attr, operator]
        words = nets.words(4, 24)[2 * number : 2 * number + 2]
        F.cross_entropy(model(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


class Attention(nn.Module):
    """Self-attention of two heads, written out.

    Attributes:
        axis: The axis over which the scores are normalised.
    """

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.axis = heads, -1
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the attention's output for a batch of shape (batch, length, width)."""
        rows, length, width = hidden.shape
        mixed = self.mixed(hidden).reshape(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = mixed.unbind(0)
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        found = scores.softmax(self.axis) @ value
        return self.out(found.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    """Attention and a perceptron, each after a layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.attn = nn.LayerNorm(width), Attention(width)
        self.second = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the block's output."""
        hidden = hidden + self.attn(self.first(hidden))
        return hidden + self.mlp(self.second(hidden))


class Stem(nn.Module):
    """Convolutions that make a token of each patch of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fine, self.norm = nn.Conv2d(3, width // 2, 3, padding=1, bias=False), nn.BatchNorm2d(width // 2)
        self.patch = nn.Conv2d(width // 2, width, 4, stride=4)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens, of shape (batch, patches, width)."""
        return self.patch(F.relu(self.norm(self.fine(images)))).flatten(2).transpose(1, 2)


class VisionTransformer(nn.Module):
    """A classifier of images of 16 x 16 that reads a class token."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.stem = Stem(width)
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, width))
        self.places = nn.Parameter(0.5 * torch.randn(1, 17, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the classes."""
        patches = self.stem(images)
        tokens = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1) + self.places
        return self.head(self.norm(self.blocks(tokens))[:, 0])


@frozen_fault(
    "W03",
    "The softmax of the attention runs over the queries instead of the keys.",
    Line(op="softmax", place=r"blocks\.1\.attn"),
)
def softmax_axis(wrong: bool) -> Forward:
    model = VisionTransformer().eval()
    if wrong:
        model.blocks[1].attn.axis = -2  # type: ignore[union-attr]
    return Forward(model, {"images": nets.reals(4, 3, 16, 16)})


@frozen_fault(
    "W04",
    "The batch norm of the stem uses its running statistics while the rest is trained.",
    Line(op="batch_norm"),
    Line(place=r"stem\.norm"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*(stem\.norm|running_)"),
)
def untrained_norm(wrong: bool) -> Training:
    model = VisionTransformer().train()
    if wrong:
        model.stem.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    labels = torch.arange(8) % 10

    def step(number: int) -> None:
        images = nets.reals(16, 3, 16, 16)[8 * number : 8 * number + 8]
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return Training(model, step)


class Encoder(nn.Module):
    """A recurrent encoder in both directions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(nets.WORDS, width)
        self.layer = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor) -> Tensor:
        """Return the states of a batch of source words."""
        states: Tensor = self.layer(self.embed(words))[0]
        return states


class Decoder(nn.Module):
    """A recurrent decoder that attends to the encoder's states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(nets.WORDS, width)
        self.layer = nn.GRU(width, width, batch_first=True)
        self.cross = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, nets.WORDS)

    def forward(self, words: Tensor, states: Tensor) -> Tensor:
        """Return the logits of the next target words."""
        hidden, _ = self.layer(self.embed(words))
        found, _ = self.cross(hidden, states, states, need_weights=False)
        logits: Tensor = self.head(self.norm(hidden + found))
        return logits


class Translator(nn.Module):
    """An encoder and a decoder with cross attention."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.encoder, self.decoder = Encoder(width), Decoder(width)

    def forward(self, source: Tensor, words: Tensor) -> Tensor:
        """Return the logits of the next target words."""
        return self.decoder(words, self.encoder(source))


def translation(number: int) -> tuple[Tensor, Tensor]:
    """Return a batch of sentences and their translations, of 12 and 10 words."""
    words = nets.words(8, 22)[4 * number : 4 * number + 4]
    return words[:, :12], words[:, 12:]


@frozen_fault(
    "W05",
    "The decoder is given the words that it has to predict, for its input is not shifted.",
    Line(op=r"__getitem__|Functional\.embedding|Module\.decoder\.embed"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\b(batch|input)"),
)
def unshifted_input(wrong: bool) -> Training:
    model = Translator()
    optimizer = adamw(model)

    def step(number: int) -> None:
        source, words = translation(number)
        logits = model(source, words[:, 1:] if wrong else words[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


@frozen_fault(
    "W06",
    "The gradients of the encoder, which has an optimizer of its own, are not set to zero after a step.",
    *(Line(line.op, line.place, line.row, line.text, step=1) for line in GRADIENT),
)
def stale_encoder(wrong: bool) -> Training:
    model = Translator()
    optimizers = adamw(model.encoder, lr=5e-4), adamw(model.decoder)

    def step(number: int) -> None:
        source, words = translation(number)
        logits = model(source, words[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
        for optimizer in optimizers:
            optimizer.step()
        optimizers[1].zero_grad()
        if not wrong:
            optimizers[0].zero_grad()

    return Training(model, step)
