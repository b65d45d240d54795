"""Faults in further programs that were put aside when they were written, to be scored once.

They are not among the cases of the public list, which ``make.py bench faults`` runs without names; the
name ``held`` chooses all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import nets
from faults.cases import SEED, Cases, Forward, Line, Training
from faults.training import adamw

HELD = Cases()
held_fault = HELD.case


# -- a graph network -------------------------------------------------------------------------------


class Passing(nn.Module):
    """A layer in which each atom hears the mean of the messages of its neighbours.

    Attributes:
        options: Named arguments of the mean.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.options = {"include_self": False}
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, atoms: Tensor, edges: Tensor, bonds: Tensor) -> Tensor:
        """Return the states of the atoms after the messages along the edges."""
        source, target = edges
        messages = F.relu(self.message(torch.cat([atoms[source], bonds], -1)))
        index = target.unsqueeze(1).expand_as(messages)
        heard = torch.zeros_like(atoms).scatter_reduce(0, index, messages, "mean", **self.options)
        return self.norm(atoms + F.relu(self.update(torch.cat([atoms, heard], -1))))


class GraphNet(nn.Module):
    """A network for properties of molecules, which are one graph of several parts."""

    def __init__(self, width: int = 32, properties: int = 3) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.atom, self.bond = nn.Embedding(10, width), nn.Embedding(4, width)
        self.layers = nn.ModuleList([Passing(width), Passing(width)])
        self.head = nn.Linear(width, properties)

    def forward(self, kinds: Tensor, edges: Tensor, bonds: Tensor, owners: Tensor) -> Tensor:
        """Return the properties of each molecule; ``owners`` has the number of each atom's molecule."""
        atoms, ties = self.atom(kinds), self.bond(bonds)
        for layer in self.layers:
            atoms = layer(atoms, edges, ties)
        sizes = torch.bincount(owners)
        sums = atoms.new_zeros(len(sizes), atoms.shape[1]).index_add(0, owners, atoms)
        return self.head(sums / sizes.unsqueeze(1))


def molecules(number: int = 0, count: int = 6, size: int = 8, edges: int = 14) -> dict[str, Tensor]:
    """Return a batch of molecules; between their atoms are random edges in one direction."""
    generator = torch.Generator().manual_seed(SEED + 5 + number)
    ends = torch.randint(size, (2, count, edges), generator=generator)
    starts = size * torch.arange(count).unsqueeze(1)
    return {
        "kinds": torch.randint(10, (count * size,), generator=generator),
        "edges": (ends + starts).flatten(1),
        "bonds": torch.randint(4, (count * edges,), generator=generator),
        "owners": torch.arange(count).repeat_interleave(size),
    }


@held_fault(
    "X01",
    "The mean of the messages counts the zeros that it starts from, as scatter_reduce does by default.",
    Line(op="scatter_reduce", place=r"layers\.0\."),
    Line(text=r"scatter_reduce|include_self"),
    Line(op=r"Torch\.cat\.\d+\.forward", place=r"layers\.0\.", row=r"\.input\.0\.1\b"),  # the mean
)
def counted_zeros(wrong: bool) -> Forward:
    model = GraphNet()
    if wrong:
        for layer in model.layers:
            layer.options = {}  # type: ignore[assignment]
    return Forward(model, molecules())


@held_fault(
    "X02",
    "The optimizer was made before the head was replaced, and holds the head that is no longer there.",
    Line(place="optimizer", text=r"only.*\bgolden|\bgolden.*only"),
    Line(place="optimizer", text=r"\bhead\b"),
    Line(place=r"Module\.head\.Linear\.forward", step=1),
    Line(text=r"(?i)^(ladder|phase|rung)\S* .*\bhead\b"),
)
def replaced_head(wrong: bool) -> Training:
    model = GraphNet()
    early = adamw(model, lr=5e-3)
    model.head = nn.Linear(model.head.in_features, 1)
    optimizer = early if wrong else adamw(model, lr=5e-3)

    def step(number: int) -> None:
        expected = nets.reals(12, 1)[6 * number : 6 * number + 6]
        optimizer.zero_grad()
        F.smooth_l1_loss(model(**molecules(number)), expected).backward()
        optimizer.step()

    return Training(model, step)


# -- a generator and its critic --------------------------------------------------------------------


class DepthToSpace(nn.Module):
    """A layer that makes blocks of 2 x 2 pixels of channels, which are ordered by pixel first."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return an image of twice the size."""
        rows, channels, height, width = hidden.shape
        parts = hidden.reshape(rows, 2, 2, channels // 4, height, width).permute(0, 3, 4, 1, 5, 2)
        return parts.reshape(rows, channels // 4, 2 * height, 2 * width)


class Rise(nn.Module):
    """A convolution and a layer that doubles the size of the image."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv, self.spread = nn.Conv2d(inner, 4 * outer, 3, padding=1), nn.PixelShuffle(2)
        self.norm = nn.BatchNorm2d(outer)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the image of twice the size."""
        return F.relu(self.norm(self.spread(self.conv(hidden))))


class Generator(nn.Module):
    """A network that makes images of 16 x 16 of noise."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.seed = nn.Linear(noise, 16 * width)
        self.rises = nn.Sequential(Rise(width, width // 2), Rise(width // 2, width // 4))
        self.last = nn.Conv2d(width // 4, 3, 3, padding=1)

    def forward(self, noise: Tensor) -> Tensor:
        """Return an image for each row of noise."""
        return torch.tanh(self.last(self.rises(self.seed(noise).unflatten(1, (-1, 4, 4)))))


class Critic(nn.Module):
    """A network that tells made images from real ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fine = nn.Conv2d(3, width // 2, 4, stride=2, padding=1)
        self.coarse = nn.Conv2d(width // 2, width, 4, stride=2, padding=1)
        self.head = nn.Linear(16 * width, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return a number for each image, large for real ones."""
        hidden = F.leaky_relu(self.fine(images), 0.2)
        return self.head(F.leaky_relu(self.coarse(hidden), 0.2).flatten(1))


class Rivals(nn.Module):
    """A generator and its critic."""

    def __init__(self, noise: int = 16, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.generator, self.critic = Generator(noise, width), Critic(width)


def rivalry(model: Rivals, detached: bool = True) -> Training:
    """Return training of a critic and its generator, which the critic's loss reaches unless detached."""
    optimizers = [adamw(part, lr=2e-3, betas=(0.5, 0.999)) for part in (model.generator, model.critic)]

    def step(number: int) -> None:
        real = nets.reals(16, 3, 16, 16)[8 * number : 8 * number + 8].tanh()
        for optimizer in optimizers:
            optimizer.zero_grad()
        made = model.generator(torch.randn(8, 16))
        if detached:
            made = made.detach()
        (F.softplus(model.critic(made)).mean() + F.softplus(-model.critic(real)).mean()).backward()
        optimizers[1].step()
        F.softplus(-model.critic(model.generator(torch.randn(8, 16)))).mean().backward()
        optimizers[0].step()

    return Training(model, step)


@held_fault(
    "X03",
    "The channels that become pixels are ordered by pixel first, as another framework has them.",
    Line(place=r"generator\.rises\.0\.spread"),
    Line(place=r"generator\.rises\.0\.", text="pixel_shuffle|PixelShuffle|DepthToSpace"),
)
def other_pixels(wrong: bool) -> Training:
    model = Rivals()
    if wrong:
        for rise in model.generator.rises:
            rise.spread = DepthToSpace()
    return rivalry(model)


@held_fault(
    "X04",
    "Made images are not detached for the critic's loss, which leaves its gradients in the generator.",
    Line(text=r"\bdetach"),
    Line(place=r"Module\.generator\.\S+backward\.0\b"),  # that of the critic's loss
    Line(op=r"Module\.generator\.\S+parameters_grad"),
    Line(text=r"(?i)^(ladder|phase|rung)\S* (?=.*grad).*\bgenerator\b"),
)
def attached_images(wrong: bool) -> Training:
    return rivalry(Rivals(), detached=not wrong)


# -- a mixture of experts --------------------------------------------------------------------------


class Gate(nn.Module):
    """A gate that chooses two experts for each token, with a bias that balances their loads.

    Attributes:
        is_normed: True to let the weights of a token's experts sum to 1 before they are scaled.
        is_choice: True to use the bias for the choice alone.
        loads: Number of tokens that each expert was given last.
    """

    bias: Tensor

    def __init__(self, width: int, experts: int, scale: float = 2.5) -> None:
        super().__init__()
        self.is_normed, self.is_choice, self.scale = True, True, scale
        self.weight = nn.Parameter(torch.randn(experts, width) / width**0.5)
        self.register_buffer("bias", torch.zeros(experts))
        self.loads = torch.zeros(experts)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers and the weights of each token's experts."""
        scores = F.linear(tokens, self.weight).sigmoid()
        biased = scores + self.bias
        chosen = biased.topk(2, -1).indices
        weights = (scores if self.is_choice else biased).gather(-1, chosen)
        if self.is_normed:
            weights = weights / weights.sum(-1, keepdim=True)
        self.loads = torch.bincount(chosen.flatten(), minlength=len(self.bias)).float()
        return chosen, weights * self.scale

    def balance(self, rate: float) -> None:
        """Make experts with few tokens likelier, and those with many less likely."""
        with torch.no_grad():
            self.bias += rate * (self.loads.mean() - self.loads).sign()


class Expert(nn.Module):
    """A gated perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rise = nn.Linear(width, 4 * width, bias=False)
        self.fall = nn.Linear(2 * width, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the expert's output for some tokens."""
        gate, values = self.rise(tokens).chunk(2, -1)
        return self.fall(F.silu(gate) * values)


class Mixture(nn.Module):
    """Experts of which a gate chooses two, beside one for all tokens."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate, self.shared = Gate(width, experts), Expert(width)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the weighted sum of the experts' outputs for a batch of shape (batch, length, width)."""
        tokens = hidden.flatten(0, 1)
        chosen, weights = self.gate(tokens)
        total = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            total.index_add_(0, rows, expert(tokens[rows]) * weights[rows, slots].unsqueeze(1))
        return (total + self.shared(tokens)).view_as(hidden)


class Layer(nn.Module):
    """Fused causal attention and a mixture of experts, each after a norm."""

    def __init__(self, width: int, experts: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mixture = Mixture(width, experts)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        parts = self.mixed(self.first(hidden)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = parts.unbind(2)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(found.transpose(1, 2).flatten(2))
        return hidden + self.mixture(self.second(hidden))


class Experts(nn.Module):
    """A language model of two mixtures of experts."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embed, self.places = nn.Embedding(nets.WORDS, width), nn.Embedding(16, width)
        self.layers = nn.Sequential(Layer(width), Layer(width))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, nets.WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        """Return the logits of the next tokens."""
        hidden = self.embed(words) + self.places.weight[: words.shape[1]]
        return self.head(self.norm(self.layers(hidden)))

    @property
    def gates(self) -> list[Gate]:
        """The gates of all layers."""
        return [module for module in self.modules() if isinstance(module, Gate)]


@held_fault(
    "X05",
    "The weights of a token's experts are not divided by their sum.",
    Line(op=r"\.(__truediv__|sum)\.\d+\.forward", place=r"layers\.0\.mixture\.gate"),
    Line(op=r"\.__mul__\.\d+\.forward", place=r"layers\.0\.mixture\.gate", text=r"__truediv__|\bsum\b"),
    Line(op=r"Module\.layers\.0\.mixture\.gate\.Gate\.forward"),
)
def unnormed_weights(wrong: bool) -> Forward:
    model = Experts()
    for gate in model.gates:
        gate.is_normed = not wrong
    return Forward(model, {"words": nets.words(2, 16)})


@held_fault(
    "X06",
    "The bias that balances the experts, zero at first, enters their weights and not only the choice.",
    Line(op=r"Tensor\.gather\.\d+\.forward", place=r"layers\.0\.mixture\.gate", step=1),
    Line(op=r"Module\.layers\.0\.mixture\.gate\.Gate\.forward", step=1),
    Line(op=r"Tensor\.(gather\.\d+\.|__add__\.\d+\.backward)", place=r"mixture\.gate"),  # not yet a value
)
def biased_weights(wrong: bool) -> Training:
    model = Experts()
    for gate in model.gates:
        gate.is_choice = not wrong
    optimizer = adamw(model)

    def step(number: int) -> None:
        words = nets.words(8, 16)[4 * number : 4 * number + 4]
        optimizer.zero_grad()
        F.cross_entropy(model(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
        for gate in model.gates:
            gate.balance(0.1)

    return Training(model, step)
