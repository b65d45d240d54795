"""A small training script without any code for probe: ``python train.py [wrong]``.

A one-block transformer learns to predict the next word. With the argument ``wrong`` it divides attention
scores by d = 16 instead of sqrt(d) = 4.
"""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

HEADS, HEAD, WIDTH, WORDS, LENGTH = 1, 16, 16, 32, 8
SCALE = 1 / HEAD if "wrong" in sys.argv else 1 / math.sqrt(HEAD)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).view(LENGTH, 3, HEADS, HEAD).permute(1, 2, 0, 3)
        scores = torch.matmul(q, k.transpose(-1, -2)) * SCALE
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(0, 1).reshape(LENGTH, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.head = nn.Embedding(WORDS, WIDTH), Block(), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.block(self.embed(words)))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
words = torch.randint(0, WORDS, (LENGTH + 1,))
for _ in range(2):
    loss = F.cross_entropy(model(words[:-1]), words[1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
