"""The reader of runs recorded from PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from probe_recording.api import DumpRun, confidence

from probe_pytorch.ptfile import load_pt


class PyTorchRun(DumpRun):
    """A run recorded from PyTorch, which knows the signatures of its calls."""

    def argument_name(self, op: str, argument: str) -> str:
        """Return the name of the argument at a place such as ``input.7``; empty if it is not known."""
        return find_argument_name(op, argument)


class PyTorchReader:
    """A reader of runs whose header names pytorch, or no framework as in runs of msprobe 1.0."""

    framework = "pytorch"

    def sniff(self, path: Path) -> int:
        """Return the confidence, from 0 to 100, that a record file was recorded from PyTorch."""
        return confidence(path, self.framework, without_name=80)

    def open(self, path: Path) -> PyTorchRun:
        """Return the run in a record file."""
        return PyTorchRun(path, self.framework, load_pt)


# -- names of the arguments of PyTorch's functions, known without importing torch -------------------


UNKNOWN = "-"
"""Mark of an argument whose name depends on the others."""


@cache
def load_signatures() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the positional arguments of each function, such as ``Functional.batch_norm``."""
    lines = files(__package__).joinpath("signatures.txt").read_text("utf-8").splitlines()
    fields = (line.split() for line in lines if not line.startswith("#"))
    return {name: tuple(names) for name, *names in fields}


def find_argument_name(op: str, argument: str) -> str:
    """Return the name of an argument; empty if it is not known.

    Args:
        op: The key of a call, such as ``Functional.batch_norm.0.forward``.
        argument: Its place, such as ``input.7``; of the elements of a tuple ``input.1.0``.
    """
    side, _, path = argument.partition(".")
    place, *rest = path.split(".")
    if side != "input" or not place.isdecimal():
        return ""
    names = load_signatures().get(".".join(op.split(".")[:-2]), ())
    name = names[int(place)] if int(place) < len(names) else UNKNOWN
    return "" if name == UNKNOWN else name + "".join(f"[{part}]" for part in rest)
