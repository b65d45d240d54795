"""How the demonstration's runs were recorded: ``python demo_recipe.py SIDE OUT``, SIDE target or golden.

Needs torch and mindstudio-probe 8.3.3. A one-block transformer, one step forward and backward.
The target divides attention scores by d instead of sqrt(d): 1/16 for 1/4.
"""

import json
import math
import sys
from pathlib import Path

import torch
from msprobe.pytorch import PrecisionDebugger, seed_all
from torch import nn
from torch.nn import functional as F

SIDE, OUT = sys.argv[1], Path(sys.argv[2])
HEADS, HEAD, WIDTH, WORDS, LENGTH = 1, 16, 16, 32, 8
SCALE = 1 / HEAD if SIDE == "target" else 1 / math.sqrt(HEAD)


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


seed_all(1234)
torch.manual_seed(0)
model = Model()
words = torch.randint(0, WORDS, (LENGTH + 1,))
config = OUT.with_suffix(".config.json")
config.write_text(
    json.dumps(
        {
            "task": "tensor",
            "dump_path": str(OUT),
            "rank": [],
            "step": [],
            "level": "mix",
            "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
        }
    )
)
debugger = PrecisionDebugger(config_path=str(config))
debugger.start(model=model)
loss = F.cross_entropy(model(words[:-1]), words[1:])
loss.backward()
debugger.stop()
debugger.step()
print(SIDE, float(loss))
