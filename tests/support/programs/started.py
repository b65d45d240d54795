"""An environment whose interpreter reads the start file of probe-pytorch, and programs that run in it."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import ROOT

START_FILE = ROOT / "plugins" / "pytorch" / "probe-pytorch-run.pth"
LINES_OF_TRAINING = """
import torch

def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        loss = model(torch.ones(2, 3) * (step + 1)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()
"""


class StartedPrograms:
    """Programs in a directory, with ``PROBE_RUN`` and an interpreter that heeds it.

    Args:
        directory: The directory; the run is in ``run`` there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run = directory / "run"
        packages = directory / "environment" / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        packages.mkdir(parents=True)
        lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
        (packages / "a_first.pth").write_text("\n".join(lines))
        (packages / START_FILE.name).write_text(START_FILE.read_text())
        self.interpreter = directory / "environment" / "bin" / "python"
        self.interpreter.parent.mkdir()
        base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        self.interpreter.symlink_to(base)
        (directory / "environment" / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        (directory / "training.py").write_text(LINES_OF_TRAINING)
        self.configure()

    def configure(self, **fields: Any) -> None:
        """Write the configuration."""
        text = json.dumps({"dump_path": "run", "level": "mix", **fields})
        (self.directory / "config.json").write_text(text)

    def start(self, *arguments: str | Path, config: str | None = "config.json", **variables: str) -> Any:
        """Run the interpreter and return how it ended; without ``config`` the variable is not set."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PROBE_")}
        environment |= {} if config is None else {"PROBE_RUN": config}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.directory), **variables}
        return subprocess.run(
            [self.interpreter, *arguments], cwd=self.directory, env=environment, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip

    def write(self, text: str) -> Path:
        """Write a script and return its path."""
        path = self.directory / "script.py"
        path.write_text(text)
        return path

    def list_places(self) -> list[str]:
        """Return the recorded places, such as ``step0/rank``."""
        return sorted(path.parent.relative_to(self.run).as_posix() for path in self.run.rglob("dump.json"))
