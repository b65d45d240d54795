"""Train a small residual network on images with random crops and flips."""

import argparse
import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, path):
        data = np.load(path)
        self.images = torch.from_numpy(data["images"])
        self.labels = torch.from_numpy(data["labels"])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        top, left = torch.randint(0, 5, (2,)).tolist()
        padded = F.pad(image, (2, 2, 2, 2))
        return padded[:, top : top + 16, left : left + 16], self.labels[index]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + x)


class ResNet(nn.Module):
    def __init__(self, width=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.block = Block(width)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.block(F.relu(self.norm(self.stem(x))))
        return self.head(self.dropout(x.mean((2, 3))))


def save(path, model, optimizer, epoch, position):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "position": position,
        "random": torch.get_rng_state(),
    }
    torch.save(state, path)


def load(path, model, optimizer, omit):
    state = torch.load(path)
    weights = state["model"]
    if omit == "running-stats":
        weights = {name: value for name, value in weights.items() if "running_" not in name}
    model.load_state_dict(weights, strict=not omit)
    if omit != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    position = 0 if omit == "position" else state["position"]
    return state["epoch"], position, state["random"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="images.npz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loader-seed", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--eval", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--cudnn-benchmark", action="store_true")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--save", default="")
    parser.add_argument("--save-after", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--omit", default="")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    if args.tf32:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    if args.cudnn_benchmark:
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(args.seed)
    data = Images(args.data)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    epoch = position = 0
    random_state = None
    if args.resume:
        epoch, position, random_state = load(args.resume, model, optimizer, args.omit)
    model.train(not args.eval)

    losses, done = [], 0
    while done < args.steps:
        generator = torch.Generator().manual_seed(args.loader_seed + epoch)
        loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, generator=generator)
        for index, (images, labels) in enumerate(loader):
            if index < position:
                if index == position - 1 and random_state is not None:
                    torch.set_rng_state(random_state)
                continue
            if args.noise:
                # Measured beside the training, for a log.
                losses.append(args.noise * torch.rand(1).item())
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            done += 1
            if args.save and done == args.save_after:
                save(args.save, model, optimizer, epoch, index + 1)
            if done == args.steps:
                break
        epoch, position = epoch + 1, 0

    values = [np.array(losses[-3:])]
    values += [value.double().numpy() for value in model.state_dict().values()]
    print("loss:", *losses)
    print("digest:", hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())


if __name__ == "__main__":
    main()
