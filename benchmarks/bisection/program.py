"""The training script that the generated repositories hold, and the changes that are planted in it."""

from __future__ import annotations

from dataclasses import dataclass

SCRIPT = '''\
"""Train a small classifier."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.rise = nn.Linear(width, 4 * width)
        self.fall = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden):
        values = F.gelu(self.rise(self.norm(hidden)))
        return hidden + self.dropout(self.fall(values))


class Classifier(nn.Module):
    def __init__(self, width=32, depth=2, classes=10):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, inputs):
        hidden = self.embed(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        scores = self.head(hidden)
        return scores


def read_batch(size=16):
    inputs = torch.randn(size, 8)
    return inputs, inputs.abs().argmax(1)


def main():
    torch.manual_seed(1)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)
    for _ in range(2):
        inputs, labels = read_batch()
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
'''


@dataclass(frozen=True)
class PlantedChange:
    """A change of the script that changes its numbers.

    Attributes:
        name: A short name.
        old: The text that is replaced; it occurs once in the script.
        new: Its replacement.
    """

    name: str
    old: str
    new: str


CHANGES = (
    PlantedChange("eps", "eps=1e-5", "eps=1e-3"),
    PlantedChange("dropout", "nn.Dropout(0.1)", "nn.Dropout(0.2)"),
    PlantedChange("gelu", "F.gelu(self.rise(self.norm(hidden)))",
                  'F.gelu(self.rise(self.norm(hidden)), approximate="tanh")'),
    PlantedChange("init", "std=0.02", "std=0.03"),
    PlantedChange("learning-rate", "lr=1e-3", "lr=2e-3"),
    PlantedChange("weight-decay", "weight_decay=0.01", "weight_decay=0.1"),
    PlantedChange("dtype", "scores = self.head(hidden)",
                  "scores = F.linear(hidden.bfloat16(), self.head.weight.bfloat16()).float() + self.head.bias"),
    PlantedChange("order", "hidden + self.dropout(self.fall(values))",
                  "self.norm(hidden) + self.dropout(self.fall(values))"),
    PlantedChange("clipping", "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()",
                  "        optimizer.step()\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    PlantedChange("labels", "inputs.abs().argmax(1)", "inputs.argmax(1)"),
)  # fmt: skip
"""One change for each repository: arguments, random numbers, initial values, settings, dtypes, order and data."""

BROKEN_LINES = (
    "import package_that_does_not_exist",
    "raise SystemExit(2)",
    "model = Classifier(",
    'raise RuntimeError("not finished")',
    "import os; os.abort()",
    "assert torch.__version__ == '0.1'",
)
"""Lines that end the script early, one for each commit that does not run."""
