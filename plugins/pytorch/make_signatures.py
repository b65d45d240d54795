"""Writer of ``probe_pytorch/signatures.txt``, the names of the arguments of PyTorch's functions.

Run it with the newest PyTorch that probe supports: ``python plugins/pytorch/make_signatures.py``. The names
come from the signatures of Python functions, and from the first lines of the documentation of the others.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).parent / "probe_pytorch" / "signatures.txt"
SCOPES = {"Functional": torch.nn.functional, "Tensor": torch.Tensor, "Torch": torch}
HEAD = f"""# Names of positional arguments, after the name that probe records for the function.
# A dash stands for an argument whose name depends on the others.
# Made by make_signatures.py from PyTorch {torch.__version__.partition("+")[0]}.
"""


OPERATORS = frozenset(
    ["add", "sub", "mul", "truediv", "floordiv", "div", "mod", "pow", "matmul", "and", "or", "xor", "lshift",
     "rshift", "eq", "ne", "lt", "le", "gt", "ge"]
)  # fmt: skip
"""Names of binary operators, without underscores and without the letters for reversed and in place."""


def main() -> None:
    """Write the file."""
    lines = [
        f"{scope}.{name} {' '.join(names)}\n"
        for scope, owner in SCOPES.items()
        for name in sorted(dir(owner))
        if (names := list_arguments(scope, owner, name))
    ]
    FILE.write_text(HEAD + "".join(lines), "utf-8")


def list_arguments(scope: str, owner: Any, name: str) -> list[str]:
    """Return the names of the positional arguments of a function; empty if none but the first has any."""
    function = getattr(owner, name, None)
    if not callable(function) or inspect.isclass(function):
        return []
    forms = list(iterate_signatures(function, name))
    if not forms and name.endswith("_") and not name.startswith("_"):  # documented as that of another
        base = getattr(owner, name[:-1], None)
        forms = list(iterate_signatures(base, name[:-1])) if base is not None else []
    if scope == "Tensor":
        if name.startswith("__"):
            base = name.strip("_")
            is_operator = base in OPERATORS or (base[0] in "ri" and base[1:] in OPERATORS)
            return ["self", "other"] if is_operator else []
        forms = [form if form[:1] == ["self"] else ["self", *form] for form in forms]
    longest = max(map(len, forms), default=0)
    names = []
    for place in range(longest):
        candidates = {form[place] for form in forms if place < len(form)}
        names.append(candidates.pop() if len(candidates) == 1 else "-")
    while names and names[-1] == "-":
        names.pop()
    return names if len(names) > 1 else []


def iterate_signatures(function: Any, name: str) -> Iterator[list[str]]:
    """Yield the names of the positional arguments of each documented form of a function."""
    with suppress(ValueError):  # no Python function
        if not inspect.isfunction(function):
            raise ValueError
        parameters = list(inspect.signature(function).parameters.values())
        if all(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters):
            yield [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
            return
    text = (getattr(function, "__doc__", None) or "").replace("\\\n", " ")
    for match in re.finditer(rf"^\s*(?:\.\. function:: )?(?:torch\.)?{re.escape(name)}\((.*)\)", text, re.M):
        names: list[str] = []
        for part in re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", match[1]).split(","):
            name_match = re.match(r"\s*(\*?[A-Za-z_]\w*)", part)
            if name_match is None or name_match[1].startswith("*"):
                break
            names.append(name_match[1])
        if match[1].strip().startswith("*") and len(match[1].strip()) > 1 and match[1].strip()[1] != ",":
            names = ["-"]
        yield names


if __name__ == "__main__":
    main()
