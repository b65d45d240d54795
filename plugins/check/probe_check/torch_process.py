"""The process of a PyTorch program."""

from __future__ import annotations

import torch
from probe_recording.api import Process


class TorchProcess(Process):
    """A process that uses PyTorch: its rank in the default process group."""

    distributed = torch.distributed
