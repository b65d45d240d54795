"""Write the picture of the layers in ``internals.md``: ``python docs/make_layers.py``.

The layers are those that import-linter enforces, as ``pyproject.toml`` declares them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "internals.md"
BLOCK = re.compile(r"(<!-- layers -->\n\n```\n).*?(\n```)", re.DOTALL)
MAX_LINE_LENGTH = 110
LABELS = ("plugins", "plugins", "kits", "kits", "core")
"""The label of each layer of distributions, from above to below."""


def draw() -> str:
    """Return the layers of distributions and those of the core, each with what is next to each other in it."""
    contracts = (ROOT / "pyproject.toml").read_text("utf-8").split("[[tool.importlinter.contracts]]")
    distributions, packages = (_read_layers(contract) for contract in contracts if 'type = "layers"' in contract)
    lines: list[str] = []
    for label, layer in zip(LABELS, distributions, strict=True):
        names = [name.strip().removeprefix("probe_") for name in layer.split("|")]
        lines += _wrap(label, names)
        lines.append("   ↓")
    lines[-2] = f"{LABELS[-1]:10}{' → '.join(packages)}"
    return "\n".join(lines[:-1])


def _read_layers(contract: str) -> list[str]:
    layers = re.search(r"^layers = \[(.*?)\]$", contract, re.DOTALL | re.MULTILINE)
    assert layers is not None
    return re.findall(r'"([^"]+)"', layers[1])


def _wrap(label: str, names: list[str]) -> list[str]:
    """Return names in lines that begin with a label."""
    lines = [f"{label:10}"]
    for name in names:
        if len(lines[-1]) + len(name) + 2 > MAX_LINE_LENGTH:
            lines.append(" " * 10)
        lines[-1] += f"{name}  "
    return [line.rstrip() for line in lines]


def update(text: str) -> str:
    """Return the page with the current picture."""
    return BLOCK.sub(lambda block: block[1] + draw() + block[2], text)


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text("utf-8")), "utf-8")
