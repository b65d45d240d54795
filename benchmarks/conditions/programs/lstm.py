"""Train an LSTM that classifies reviews, on frozen word vectors, with word dropout."""

import argparse
import hashlib
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, words, width=16, hidden=24, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.embedding.weight.requires_grad_(False)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(F.dropout(states.mean(1), 0.2, self.training))


def batches(tokens, labels, size, epoch_order):
    for start in range(0, len(epoch_order), size):
        chosen = epoch_order[start : start + size]
        words = tokens[chosen].copy()
        words[np.random.rand(*words.shape) < 0.1] = 0
        yield torch.from_numpy(words), torch.from_numpy(labels[chosen])


def save(path, model, optimizer, order, position):
    state = {
        "model": {name: one.detach() for name, one in model.named_parameters() if one.requires_grad},
        "optimizer": optimizer.state_dict(),
        "order": order,
        "position": position,
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }
    torch.save(state, path)


def load(path, model, optimizer, omit):
    state = torch.load(path, weights_only=False)
    model.load_state_dict(state["model"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["torch"])
    if omit != "numpy":
        np.random.set_state(state["numpy"])
    if omit != "python":
        random.setstate(state["python"])
    return state["order"], state["position"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="reviews.npz")
    parser.add_argument("--vectors", default="vectors.npy")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--numpy-seed", type=int, default=3)
    parser.add_argument("--python-seed", type=int, default=3)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save", default="")
    parser.add_argument("--save-after", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--omit", default="")
    args = parser.parse_args()

    if args.double:
        torch.set_default_dtype(torch.float64)
    torch.manual_seed(args.seed)
    np.random.seed(args.numpy_seed)
    random.seed(args.python_seed)
    data = np.load(args.data)
    tokens, labels = data["tokens"], data["labels"]
    model = Classifier(int(tokens.max()) + 1)
    if args.omit != "vectors":
        with torch.no_grad():
            model.embedding.weight.copy_(torch.from_numpy(np.load(args.vectors)))
    trainable = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=2e-3)
    order, position = [], 0
    if args.resume:
        order, position = load(args.resume, model, optimizer, args.omit)
    model.train()

    losses = []
    while len(losses) < args.steps:
        if position >= len(order):
            order, position = list(range(len(tokens))), 0
            random.shuffle(order)
        for words, targets in batches(tokens, labels, 8, order[position:]):
            position += 8
            loss = F.cross_entropy(model(words), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trainable, 5.0)
            optimizer.step()
            losses.append(loss.item())
            if args.save and len(losses) == args.save_after:
                save(args.save, model, optimizer, order, position)
            if len(losses) == args.steps:
                break

    values = [np.array(losses[-3:])]
    values += [value.detach().double().numpy() for value in model.parameters()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
