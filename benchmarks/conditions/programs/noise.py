"""Train one of ten small models that draw random numbers in their forward pass."""

import argparse
import hashlib
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Dropouts(nn.Module):
    """Wrap a classifier of 24 features around a regularizer."""

    def __init__(self, regularizer, activation=None):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(24, 32),
            activation or nn.ReLU(),
            regularizer,
            nn.Linear(32, 32),
            nn.ReLU(),
            nn.Linear(32, 4),
        )

    def forward(self, x):
        return self.layers(x)


class SpatialDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.drop = nn.Dropout2d(0.3)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x.view(-1, 1, 4, 6)))
        x = F.relu(self.conv2(self.drop(x)))
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 16, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.lstm(x.view(-1, 4, 6))[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.1, batch_first=True)
        self.embed = nn.Linear(6, 24)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.view(-1, 4, 6))).mean(1))


class AttentionDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 48)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        q, k, v = self.qkv(x.view(-1, 4, 6)).view(-1, 4, 2, 24).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0)
        return self.head(y.transpose(1, 2).reshape(-1, 4, 16).mean(1))


class StochasticDepth(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.embed = nn.Linear(24, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            keep = x.new_empty(x.shape[0], 1).bernoulli_(0.7)
            x = x + block(x) * keep / 0.7
        return self.head(x)


class NoisyLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.mean = nn.Parameter(torch.empty(outputs, inputs).uniform_(-0.2, 0.2))
        self.sigma = nn.Parameter(torch.full((outputs, inputs), 0.05))

    def forward(self, x):
        return F.linear(x, self.mean + self.sigma * torch.randn_like(self.sigma))


class Bayesian(nn.Module):
    """A layer whose weights are sampled by the reparameterization trick."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.randn(4, 24) * 0.1)
        self.rho = nn.Parameter(torch.full((4, 24), -3.0))

    def forward(self, x):
        weights = torch.distributions.Normal(self.mean, F.softplus(self.rho)).rsample()
        return F.linear(x, weights)


class Gumbel(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(24, 4)
        self.experts = nn.ModuleList(nn.Linear(24, 4) for _ in range(4))

    def forward(self, x):
        weights = F.gumbel_softmax(self.router(x), tau=1.0)
        outputs = torch.stack([expert(x) for expert in self.experts], -1)
        return (outputs * weights.unsqueeze(1)).sum(-1)


MODELS = {
    "dropout": lambda: Dropouts(nn.Dropout(0.2)),
    "alpha-dropout": lambda: Dropouts(nn.AlphaDropout(0.2), nn.SELU()),
    "dropout2d": SpatialDropout,
    "lstm": Recurrent,
    "encoder": Encoder,
    "attention-dropout": AttentionDropout,
    "stochastic-depth": StochasticDepth,
    "noisy-linear": lambda: Dropouts(NoisyLinear(32, 32)),
    "bayesian": Bayesian,
    "gumbel": Gumbel,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pretrained", action="store_true", help="the same initial weights for all seeds")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(0 if args.pretrained else args.seed)
    model = MODELS[args.model]()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(99)
    features = torch.randn(24, 24, generator=generator)
    labels = torch.randint(4, (24,), generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()

    losses = []
    for step in range(args.steps):
        chosen = slice(step * 8 % 24, step * 8 % 24 + 8)
        loss = F.cross_entropy(model(features[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    values = [np.array(losses)] + [value.detach().double().numpy() for value in model.parameters()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
