"""The small convolutional model of the older dumps."""

from __future__ import annotations

import torch
import torch.nn.functional as F


class Conv(torch.nn.Module):
    """The small convolutional model of the dumps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(4)
        self.conv2 = torch.nn.Conv2d(4, 6, 3, stride=2)
        self.fc = torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn(self.conv1(x)))
        x = torch.relu(self.conv2(F.max_pool2d(x, 2)))
        return F.log_softmax(self.fc(x.flatten(1)), dim=-1)
