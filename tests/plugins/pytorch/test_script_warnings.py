"""Warnings of a script that is recorded: the same lines are named, as often, as without the recorder."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
from support.programs import preloaded
from support.sampling import sampled

SCRIPT = """\
    import sys
    import warnings
    import torch
    from torch import nn
    from torch.nn import functional as F

    if len(sys.argv) > 2:
        from probe_pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(dump_path=sys.argv[1], level=sys.argv[2])
        debugger.start(model=nn.Linear(1, 1))

    x = torch.rand(3, 4)

    class Net(nn.Module):
        def forward(self, x):
            warnings.warn("of a module's forward")
            return F.softmax(x)

    def ask():
        warnings.warn("of the caller", stacklevel=2)

    def train(net):
        F.softmax(x)
        F.softmax(x)
        F.mse_loss(x, torch.rand(4))
        nn.MSELoss()(x, torch.rand(4))
        net(x)
        torch.add(x, 1, out=torch.empty(2))
        torch.add(x, 1, out=torch.empty(3))
        torch.rand(2, 3, 4).T
        torch.rand(2, 3, 4).T
        y = torch.rand(2, requires_grad=True) * 2
        y.grad
        F.dropout2d(torch.rand(2, 3))
        torch.rand(1).std()
        warnings.warn("mine")
        warnings.warn("old", DeprecationWarning)
        ask()

    for _ in range(2):
        train(Net())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F.softmax(x)
    print("caught in", caught[0].filename, "line", caught[0].lineno)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            F.mse_loss(x, torch.rand(4))
        except UserWarning as error:
            print("raised", str(error)[:20])
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warnings")
    (root / "train.py").write_text(textwrap.dedent(SCRIPT))
    return root


def told(place: Path, *command: str, options: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """Run the script; its output, and the place and the text of each warning in their order."""
    done = preloaded.run([sys.executable, *options, *command], cwd=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r"^(.*\.py:\d+: \w+Warning: .{20})", done.stderr, re.M)


@pytest.fixture(scope="module")
def plain(place: Path) -> tuple[str, list[str]]:
    out, lines = told(place, "train.py")
    assert sum("train.py" in line for line in lines) >= 8
    assert sum("Implicit dimension" in line for line in lines) == 3, "once for each line that asks for it"
    return out, lines


@pytest.mark.parametrize("level", sampled(["L0", "L1", "mix", "L2"], 0, ("L0", "mix").__contains__))
def test_warnings_under_probe_run(level: str, place: Path, plain: tuple[str, list[str]]) -> None:
    command = ("-m", "probe_core.cli", "run", "-o", f"run-{level}", "--level", level, "train.py")
    assert told(place, *command) == plain


@pytest.mark.parametrize("level", sampled(["L0", "L1", "mix", "L2"], 0, ("L1", "L2").__contains__))
def test_warnings_under_the_debugger(level: str, place: Path, plain: tuple[str, list[str]]) -> None:
    assert told(place, "train.py", f"debugger-{level}", level) == plain


def test_filters_know_the_module_of_the_script(place: Path) -> None:
    """A filter that names a module is asked for the script's."""
    options = ("-W", "ignore", "-W", "default:::__main__")
    _, lines = told(place, "train.py", options=options)
    assert lines
    assert told(place, "train.py", "filtered", "L1", options=options)[1] == lines


def test_a_module_of_torch_that_counts_further_frames(place: Path) -> None:
    """The warning of nn.Softmax is of its caller's caller, which is torch.

    torch calls modules from another line while there are hooks: the line number is its own affair.
    """
    path = place / "softmax.py"
    path.write_text("import torch\ntorch.nn.Softmax()(torch.rand(2, 3))\n")
    _, (line,) = told(place, "softmax.py")
    command = ("-m", "probe_core.cli", "run", "-o", "softmax", "--level", "L1", "softmax.py")
    (recorded,) = told(place, *command)[1]
    assert re.sub(r":\d+:", "::", recorded) == re.sub(r":\d+:", "::", line)
    assert recorded.partition(":")[0].endswith("torch/nn/modules/module.py")


def test_stacks_hold_no_line_twice(place: Path) -> None:
    import json

    told(place, "train.py", "stacks", "mix")
    groups = json.loads((place / "stacks/step0/rank/stack.json").read_text()).values()
    stacks = [lines for _, lines in groups]
    assert stacks and not any("<recorded>" in line for lines in stacks for line in lines)
    assert all(len(lines) == len(set(lines)) for lines in stacks)
