"""Names of the arguments of PyTorch's functions, known without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

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
