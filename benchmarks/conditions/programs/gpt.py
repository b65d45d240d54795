"""Train a small GPT on the characters of a text."""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dropout(self.proj(y.transpose(1, 2).reshape(batch, length, width)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width=32, layers=2, heads=4, dropout=0.1):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.noise = 0.0

    def forward(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
            if self.noise:
                # A leftover: the value is not used.
                torch.rand(1)
        return self.head(self.ln_f(x))


def get_batch(text, size, length):
    starts = torch.randint(len(text) - length - 1, (size,))
    inputs = torch.stack([text[start : start + length] for start in starts])
    targets = torch.stack([text[start + 1 : start + length + 1] for start in starts])
    return inputs, targets


def save(path, model, optimizer, done):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": done,
        "random": torch.get_rng_state(),
    }
    torch.save(state, path)


def load(path, model, optimizer, omit):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    if omit != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    for slot in optimizer.state.values():
        if omit == "exp_avg":
            slot["exp_avg"].zero_()
        if omit == "step":
            slot["step"].zero_()
    if omit != "random":
        torch.set_rng_state(state["random"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="corpus.txt")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", default="highest")
    parser.add_argument("--attention", default="all")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--save", default="")
    parser.add_argument("--save-after", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--omit", default="")
    args = parser.parse_args()

    torch.set_float32_matmul_precision(args.precision)
    if args.attention == "math":
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.manual_seed(args.seed)
    text = Path(args.data).read_text()
    characters = sorted(set(text))
    tokens = torch.tensor([characters.index(one) for one in text])
    model = GPT(len(characters), 32)
    model.noise = args.noise
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    if args.resume:
        load(args.resume, model, optimizer, args.omit)
    model.train()

    losses = []
    for step in range(args.steps):
        inputs, targets = get_batch(tokens, 4, 32)
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if args.save and step + 1 == args.save_after:
            save(args.save, model, optimizer, step + 1)

    values = [np.array(losses[-3:])]
    values += [value.detach().double().numpy() for value in model.parameters()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
