"""Train one of ten small models whose training samples, augments or masks its data."""

import argparse
import hashlib
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = torch.Generator().manual_seed(99)
FEATURES = torch.randn(64, 24, generator=FIXED)
LABELS = torch.randint(4, (64,), generator=FIXED)
WORDS = torch.randint(1, 40, (64, 12), generator=FIXED)


def mlp(inputs, outputs, hidden=32):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Task(nn.Module):
    """A model with the loss of one step as its method."""

    def loss(self, step):
        raise NotImplementedError


class Gan(Task):
    def __init__(self):
        super().__init__()
        self.generator, self.critic = mlp(8, 24), mlp(24, 1)

    def loss(self, step):
        real = FEATURES[step * 8 : step * 8 + 8]
        fake = self.generator(torch.randn(8, 8))
        return self.critic(fake).mean() - self.critic(real).mean() + F.mse_loss(fake.mean(0), real.mean(0))


class Diffusion(Task):
    def __init__(self):
        super().__init__()
        self.net = mlp(25, 24)
        self.register_buffer("alphas", torch.cumprod(1 - torch.linspace(1e-3, 0.2, 20), 0))

    def loss(self, step):
        clean = FEATURES[step * 8 : step * 8 + 8]
        time = torch.randint(0, 20, (8,))
        noise = torch.randn_like(clean)
        alpha = self.alphas[time].unsqueeze(1)
        noised = alpha.sqrt() * clean + (1 - alpha).sqrt() * noise
        return F.mse_loss(self.net(torch.cat([noised, time.unsqueeze(1) / 20], 1)), noise)


class PolicyGradient(Task):
    def __init__(self):
        super().__init__()
        self.net = mlp(24, 4)

    def loss(self, step):
        seen = FEATURES[step * 8 : step * 8 + 8]
        policy = torch.distributions.Categorical(logits=self.net(seen))
        actions = policy.sample()
        reward = (actions == LABELS[step * 8 : step * 8 + 8]).float()
        return -(policy.log_prob(actions) * (reward - reward.mean())).mean()


class QLearning(Task):
    """Epsilon-greedy exploration and a replay buffer, both by Python's random."""

    def __init__(self):
        super().__init__()
        self.net = mlp(24, 4)
        self.memory = []

    def loss(self, step):
        for index in range(16):
            seen = FEATURES[step * 16 + index]
            with torch.no_grad():
                action = random.randrange(4) if random.random() < 0.5 else int(self.net(seen).argmax())
            self.memory.append((seen, action, float(action == LABELS[step * 16 + index])))
        chosen = random.sample(self.memory, 8)
        states = torch.stack([state for state, _, _ in chosen])
        actions = torch.tensor([[action] for _, action, _ in chosen])
        rewards = torch.tensor([reward for _, _, reward in chosen])
        return F.smooth_l1_loss(self.net(states).gather(1, actions).squeeze(1), rewards)


class SkipGram(Task):
    """Word vectors with negative sampling."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Embedding(40, 16), nn.Embedding(40, 16)
        nn.init.normal_(self.outer.weight, std=0.1)
        counts = torch.bincount(WORDS.flatten(), minlength=40).float()
        self.register_buffer("frequency", counts**0.75)

    def loss(self, step):
        words = WORDS[step * 8 : step * 8 + 8]
        center, context = self.inner(words[:, 5]), self.outer(words[:, 6])
        negative = self.outer(torch.multinomial(self.frequency, 40, replacement=True).view(8, 5))
        positive = F.logsigmoid((center * context).sum(1))
        return -(positive + F.logsigmoid(-(negative @ center.unsqueeze(2)).squeeze(2)).sum(1)).mean()


class MaskedLanguage(Task):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(41, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 40)

    def loss(self, step):
        words = WORDS[step * 8 : step * 8 + 8]
        masked = torch.bernoulli(torch.full(words.shape, 0.3)).bool()
        logits = self.head(self.layer(self.embed(words.masked_fill(masked, 40))))
        return F.cross_entropy(logits.flatten(0, 1), words.masked_fill(~masked, -100).flatten())


class Denoising(Task):
    def __init__(self):
        super().__init__()
        self.net = mlp(24, 24, 12)

    def loss(self, step):
        clean = FEATURES[step * 8 : step * 8 + 8]
        noise = np.random.normal(0, 0.3, clean.shape).astype(np.float32)
        return F.mse_loss(self.net(clean + torch.from_numpy(noise)), clean)


class Mixup(Task):
    def __init__(self):
        super().__init__()
        self.net = mlp(24, 4)

    def loss(self, step):
        inputs, labels = FEATURES[step * 8 : step * 8 + 8], LABELS[step * 8 : step * 8 + 8]
        weight, order = float(np.random.beta(0.4, 0.4)), torch.randperm(8)
        logits = self.net(weight * inputs + (1 - weight) * inputs[order])
        mixed = F.cross_entropy(logits, labels[order])
        return weight * F.cross_entropy(logits, labels) + (1 - weight) * mixed


class Erasing(Task):
    """Images with random flips and erased squares, by Python's random."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 4)

    def loss(self, step):
        images = FEATURES[step * 8 : step * 8 + 8].view(8, 1, 4, 6).clone()
        for image in images:
            if random.random() < 0.5:
                image.copy_(image.flip(-1))
            top, left = random.randrange(3), random.randrange(5)
            image[:, top : top + 2, left : left + 2] = 0
        features = F.relu(self.conv(images)).mean((2, 3))
        return F.cross_entropy(self.head(features), LABELS[step * 8 : step * 8 + 8])


class Contrastive(Task):
    """Two augmented views of randomly chosen samples."""

    def __init__(self):
        super().__init__()
        self.net = mlp(24, 16)

    def loss(self, step):
        chosen = FEATURES[torch.randperm(64)[:8]]
        views = [chosen * torch.empty(8, 1).uniform_(0.8, 1.2) + 0.1 * torch.randn(8, 24) for _ in range(2)]
        first, second = (F.normalize(self.net(view), dim=1) for view in views)
        return F.cross_entropy(first @ second.T / 0.2, torch.arange(8))


TASKS = {
    "gan": Gan, "diffusion": Diffusion, "policy-gradient": PolicyGradient, "q-learning": QLearning,
    "skip-gram": SkipGram, "masked-language": MaskedLanguage, "denoising": Denoising, "mixup": Mixup,
    "erasing": Erasing, "contrastive": Contrastive,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pretrained", action="store_true", help="the same initial weights for all seeds")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(0 if args.pretrained else args.seed)
    task = TASKS[args.task]()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    optimizer = torch.optim.AdamW(task.parameters(), lr=1e-2)
    task.train()

    losses = []
    for step in range(args.steps):
        loss = task.loss(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    values = [np.array(losses)] + [value.detach().double().numpy() for value in task.parameters()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
