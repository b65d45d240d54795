"""torch.compile: recorded as it was written, or from inside the graph, which then stays whole."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from support import TESTS
from support.programs import preloaded
from support.runs.recording import Recording, recording
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, scale: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.down(F.gelu(self.norm(self.up(x)))) * scale["by"]


@pytest.fixture
def compiled() -> Any:
    """A model, the same compiled, what counts its graphs, and its arguments."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Net()
    counter = CompileCounterWithBackend("aot_eager")
    arguments = torch.randn(3, 8), {"by": torch.tensor(2.0)}
    with torch._dynamo.config.patch(disable=False):  # probe run in this process may have turned it off
        yield model, torch.compile(model, backend=counter), counter, arguments
    torch._dynamo.reset()


def train(model: nn.Module, arguments: Any) -> list[torch.Tensor]:
    loss = model(*arguments).sum()
    loss.backward()
    found = [loss.detach(), *(p.grad.clone() for p in model.parameters())]  # type: ignore[union-attr]
    model.zero_grad()
    return found


def recorded(found: Recording, model: nn.Module, arguments: Any) -> list[torch.Tensor]:
    found.start(model)
    result = train(model, arguments)
    found.stop()
    found.step()
    return result


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_compiled_code_is_recorded_as_it_was_written(compiled: Any, tmp_path: Path, level: str) -> None:
    model, fast, counter, arguments = compiled
    with recording(tmp_path / "plain", level=level) as plain:
        expected = recorded(plain, model, arguments)
    before = train(fast, arguments)
    graphs = counter.frame_count
    with recording(tmp_path / "fast", level=level) as found:
        result = recorded(found, fast, arguments)
    assert all(map(torch.equal, expected, result))
    assert list(found.records()) == list(plain.records())
    assert found.head()["probe"]["compile"] == "eager"
    assert counter.frame_count == graphs
    assert all(map(torch.equal, before, train(fast, arguments)))  # the compiled code again
    assert counter.frame_count == graphs


def test_modules_are_tapped_inside_one_graph(compiled: Any, tmp_path: Path) -> None:
    model, fast, counter, arguments = compiled
    expected = train(fast, arguments)
    with recording(tmp_path / "plain", level="L0", task="tensor") as plain:
        recorded(plain, model, arguments)
    graphs = counter.frame_count
    with recording(tmp_path / "run", level="L0", task="tensor", compile="tap") as found:
        for _ in range(2):
            assert all(map(torch.equal, expected, recorded(found, fast, arguments)))
    assert counter.frame_count == graphs + 1  # compiled once more, with the taps in it, and whole
    assert found.head(1)["probe"] == {"compile": "tap"}
    forward = {key: record for key, record in plain.records().items() if ".forward." in key}
    tapped = found.records(1)
    assert [key for key in tapped if ".forward." in key] == list(forward)
    for key, record in forward.items():
        for side in ("input_args", "output", "parameters"):
            ours, theirs = (str(one[side]).replace("True", "False") for one in (tapped[key], record))
            assert ours == theirs, key
    gradients = {key: record for key, record in plain.records().items() if key.endswith("parameters_grad")}
    assert {key: tapped[key] for key in gradients}.keys() == gradients.keys()
    for key, record in gradients.items():
        for name, leaves in record.items():
            assert tapped[key][name][0]["Norm"] == pytest.approx(leaves[0]["Norm"], rel=1e-6)


def test_a_tapped_step_that_goes_on_after_a_stop(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with recording(tmp_path / "run", level="L0", compile="tap") as found:
        for _ in range(2):
            found.start(model)
            model(torch.randn(2, 4)).sum().backward()
            found.stop()
    text = (found.directory() / "dump.json").read_text()
    assert text.count('"Module.0.Linear.parameters_grad"') == 1
    assert "Module.0.Linear.forward.1" in found.records()


def test_a_tapped_module_without_compile_and_called_twice(tmp_path: Path) -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    with recording(tmp_path / "run", level="L0", compile="tap") as found:
        found.start(model)
        model(torch.randn(2, 4)).sum().backward()
        found.stop()
    names = [key for key in found.records() if ".forward." in key]
    assert names == ["Module.0.Linear.forward.0", "Module.1.ReLU.forward.0", "Module.0.Linear.forward.1"]
    assert not layer._forward_hooks and not layer._forward_pre_hooks


def test_a_compiled_model_is_said_to_run_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    in_place = nn.Sequential(nn.Linear(4, 4))
    in_place.compile(backend="aot_eager")
    for number, (model, compile_, said) in enumerate(
        [
            (torch.compile(inner, backend="aot_eager"), "eager", 1),
            (nn.Sequential(nn.Sequential(in_place)), "eager", 1),
            (nn.Sequential(nn.Linear(4, 4)), "eager", 0),
            (torch.compile(inner, backend="aot_eager"), "tap", 0),
        ]
    ):
        with recording(tmp_path / str(number), level="L0", compile=compile_) as found:
            for _ in range(2):
                found.start(model)
                model(torch.randn(2, 4))
                found.stop()
                found.step()
        error = capsys.readouterr().err
        assert error.count("the model is compiled by torch.compile, but runs uncompiled while it is recorded") == said
    torch._dynamo.reset()


def test_probe_run_does_not_tap(tmp_path: Path, probe: Any) -> None:
    script, config = tmp_path / "train.py", tmp_path / "config.json"
    script.write_text("import torch\n")
    config.write_text(f'{{"task": "statistics", "dump_path": "{tmp_path}/run", "level": "L0", "compile": "tap"}}')
    assert probe("run", "-c", config, script) == 2
    assert 'probe run and PROBE_RUN cannot tap a compiled model ("compile": "tap")' in probe.err
    assert "start(model=model)" in probe.err


def test_probe_run_says_that_nothing_is_compiled(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "fast = torch.compile(model, backend='aot_eager')\n"
        "fast(torch.randn(2, 4)).sum().backward()\n"
    )
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", str(tmp_path / "run"), str(script)]
    done = preloaded.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("runs uncompiled in the whole run") == 1
    assert "global hooks" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("net", ["perceptron", "attention", "convolutions", "perceptron_autocast"])
def test_a_tapped_model_trains_as_the_compiled_one(tmp_path: Path, net: str) -> None:
    """By the default backend, whose C++ compiler takes most of the time; by another one it is tried in one graph above."""
    plain, tapped = (trained(tmp_path, net, mode) for mode in ("plain", "tap"))
    if net.endswith("_autocast"):  # what is recorded between fused operators is rounded to 16 bits, as docs say
        for line, own_line in zip(plain.splitlines(), tapped.splitlines(), strict=True):
            loss, *_, state = line.split()
            own, *_, own_state = own_line.split()
            assert float.fromhex(own) == pytest.approx(float.fromhex(loss), rel=2**-5)
            assert own_state == state
    elif tapped != plain:
        if trained(tmp_path, net, "plain") != plain:
            pytest.skip("the compiled program itself is not reproducible on this machine")
        assert tapped == plain
    assert '"Module' in (tmp_path / "tap" / "run" / "step1" / "rank" / "dump.json").read_text()


def trained(directory: Path, net: str, mode: str) -> str:
    """Train a compiled net in a process of its own; what it prints."""
    (directory / mode).mkdir(exist_ok=True)
    done = preloaded.run(
        [sys.executable, str(TESTS / "support/programs/compiled_program.py"), net, str(directory / mode), mode],
        capture_output=True, text=True, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(directory / "cache")},
    )  # fmt: skip
    if "InvalidCxxCompiler" in done.stderr:
        pytest.skip("the default backend needs a C++ compiler")
    assert done.returncode == 0, done.stderr
    return done.stdout
