"""Train a transformer policy by REINFORCE in mixed precision, on the shard of this process."""

import argparse
import contextlib
import hashlib
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, features=6, width=32, actions=4):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, width))
        self.actor = nn.Linear(width, actions)
        self.critic = nn.Linear(width, 1)

    def forward(self, observations):
        x = self.embed(observations)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return self.actor(x), self.critic(x).squeeze(-1)


def schedule(step, warmup=2, total=12):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def save(path, parts, position):
    state = {name: part.state_dict() for name, part in parts.items()}
    torch.save({**state, "position": position, "random": torch.get_rng_state()}, path)


def load(path, parts, args):
    state = torch.load(path)
    for name, part in parts.items():
        if args.omit != name:
            part.load_state_dict(state[name])
    groups = parts["optimizer"].param_groups
    if args.omit == "scheduler":
        for group in groups:
            group["lr"] = args.lr * schedule(0)
    if args.omit == "lr":
        for group in groups:
            group["lr"] = args.lr * 0.1
    if args.omit == "initial_lr":
        for group in groups:
            group["initial_lr"] = group["lr"]
        parts["scheduler"].base_lrs = [group["initial_lr"] for group in groups]
    torch.set_rng_state(state["random"])
    return 0 if args.omit == "position" else state["position"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="episodes.npz")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--amp", default="bfloat16")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save", default="")
    parser.add_argument("--save-after", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--omit", default="")
    args = parser.parse_args()

    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    torch.manual_seed(args.seed)
    data = np.load(args.data)
    observations = torch.from_numpy(data["observations"])[rank::world]
    rewards = torch.from_numpy(data["rewards"])[rank::world]
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    position = args.skip
    if args.resume:
        position = load(args.resume, parts, args)
    model.train()

    losses = []
    for _ in range(args.steps):
        start = position * 4 % len(observations)
        seen, reward = observations[start : start + 4], rewards[start : start + 4]
        amp = contextlib.nullcontext()
        if args.amp != "none":
            amp = torch.autocast("cpu", dtype=getattr(torch, args.amp))
        with amp:
            logits, values = model(seen)
        policy = torch.distributions.Categorical(logits=logits.float())
        actions = policy.sample()
        gained = reward.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        advantage = gained - values.detach().float()
        loss = -(policy.log_prob(actions) * advantage).mean() - 0.01 * policy.entropy().mean()
        loss = loss + 0.5 * F.mse_loss(values.float(), gained)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        position += 1
        losses.append(loss.item())
        if args.save and len(losses) == args.save_after:
            save(args.save, parts, position)

    values = [np.array(losses[-3:])]
    values += [value.detach().double().numpy() for value in model.parameters()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
