"""Train a variational autoencoder on digits, with an average of its weights as a teacher."""

import argparse
import copy
import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=48, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.randn(mean.shape) * torch.exp(0.5 * log_variance)
        return self.decoder(latent), mean, log_variance


def update_average(average, model, decay=0.9):
    with torch.no_grad():
        for kept, current in zip(average.parameters(), model.parameters()):
            kept.lerp_(current, 1 - decay)
        for kept, current in zip(average.buffers(), model.buffers()):
            kept.copy_(current)


def save(path, model, average, optimizer, done):
    state = {
        "model": model.state_dict(),
        "average": average.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": done,
        "random": torch.get_rng_state(),
    }
    torch.save(state, path)


def load(path, model, average, optimizer, omit):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    average.load_state_dict(state["model"] if omit == "average" else state["average"])
    optimizer.load_state_dict(state["optimizer"])
    for slot in optimizer.state.values():
        if omit == "step":
            slot["step"].zero_()
    torch.set_rng_state(state["random"])
    return state["step"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="digits.npz")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--beta2", type=float, default=0.999)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--no-mkldnn", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save", default="")
    parser.add_argument("--save-after", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--omit", default="")
    args = parser.parse_args()

    if args.deterministic:
        torch.use_deterministic_algorithms(True)
    if args.no_mkldnn:
        torch.backends.mkldnn.enabled = False
    torch.manual_seed(args.seed)
    digits = torch.from_numpy(np.load(args.data)["digits"])
    model = VAE()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, args.beta2))
    done = load(args.resume, model, average, optimizer, args.omit) if args.resume else 0
    model.train()
    average.eval()

    losses = []
    for step in range(done, done + args.steps):
        start = step * args.batch_size % len(digits)
        batch = digits[start : start + args.batch_size]
        output, mean, log_variance = model(batch)
        with torch.no_grad():
            teacher, _, _ = average(batch)
        divergence = -0.5 * torch.mean(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = F.binary_cross_entropy_with_logits(output, batch) + 0.1 * divergence
        loss = loss + 0.1 * F.mse_loss(output, teacher)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average(average, model)
        losses.append(loss.item())
        if args.save and step + 1 == args.save_after:
            save(args.save, model, average, optimizer, step + 1)

    values = [np.array(losses[-3:])]
    values += [value.double().numpy() for value in model.state_dict().values()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
