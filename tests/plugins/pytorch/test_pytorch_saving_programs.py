"""Programs that save and send what they have while it is recorded: models, optimizers, functions, tensors."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import TESTS
from support.programs import preloaded
from support.programs.saved_models import GRAPHS, dicts_of_hooks, hooked, net, outcome, step, to_bytes, words
from support.runs.recording import recording
from torch import nn

LOADER = """\
    import sys
    heard = []
    sys.addaudithook(lambda event, arguments: heard.append(event))
    import torch
    from support.programs import saved_models
    model, output = torch.load(sys.argv[1], weights_only=False)
    assert all(count < 1 for _, _, _, count in saved_models.dicts_of_hooks(model))
    saved_models.step(model)
    assert not [event for event in heard if "recorder" in event or "probe" in event]
    assert not [name for name in sys.modules if name.startswith("probe")]
    print("loaded")
"""


def run(*arguments: str | Path, cwd: Path, start: Any = preloaded.run) -> subprocess.CompletedProcess[str]:
    """A process of python that finds the modules of the tests."""
    command = [sys.executable, *map(str, arguments)]
    env = {**os.environ, "PATH": "", "PYTHONPATH": str(TESTS)}
    program = start(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert not program.returncode, program.stderr
    return program


def test_a_model_that_was_saved_loads_without_probe(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="mix") as found:
        model = net()
        found.start(model)
        torch.save((model, model(words())), tmp_path / "model.pt")
        found.stop()
    (tmp_path / "load.py").write_text(textwrap.dedent(LOADER))
    loaded = run("load.py", "model.pt", cwd=tmp_path, start=subprocess.run)  # without modules of probe
    assert loaded.stdout == "loaded\n"


WORDS = """\
    import sys

    import torch
    import torch.nn.functional as F
    from torch import nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.1), nn.Embedding(9, 4)
            self.rnn, self.decoder = nn.LSTM(4, 4, 2, dropout=0.1), nn.Linear(4, 9)
            self.decoder.weight = self.encoder.weight

        def forward(self, x, state):
            output, state = self.rnn(self.drop(self.encoder(x)), state)
            return F.log_softmax(self.decoder(self.drop(output)).view(-1, 9), dim=1), state

    torch.manual_seed(1)
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    text, state, best = torch.arange(30).reshape(6, 5) % 9, None, None
    for _ in range(2):
        model.train()
        scores, state = model(text, state)
        state = tuple(part.detach() for part in state)
        loss = F.nll_loss(scores, text.view(-1))
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            validation = F.nll_loss(model(text, state)[0], text.view(-1)).item()
        if best is None or validation < best:
            with open("model.pt", "wb") as file:
                torch.save(model, file)
            best = validation
    kinds = [Words, nn.Dropout, nn.Embedding, nn.LSTM, nn.Linear]
    with open("model.pt", "rb") as file:
        if hasattr(torch.serialization, "safe_globals"):
            with torch.serialization.safe_globals(kinds):
                model = torch.load(file)
        else:
            model = torch.load(file)
    model.rnn.flatten_parameters()
    with torch.no_grad():
        assert F.nll_loss(model(text, state)[0], text.view(-1)).isfinite()
"""


def test_a_script_that_keeps_its_best_model_and_loads_it(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(textwrap.dedent(WORDS))
    run("-m", "probe_core.cli", "run", "-o", "run", "--step", "all", "words.py", cwd=tmp_path)
    saved = (tmp_path / "model.pt").read_bytes()
    run("words.py", cwd=tmp_path)
    assert (tmp_path / "model.pt").read_bytes() == saved


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_optimizers_and_what_goes_with_them_are_saved(tmp_path: Path, level: str) -> None:
    def saved(start: Any) -> list[Any]:
        model = net()
        start(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        step(model)
        optimizer.step()
        schedule.step()
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(words()), collate_fn=model)
        twin = copy.deepcopy(optimizer)
        values = optimizer, optimizer.state_dict(), schedule.state_dict(), twin.state_dict(), loader.dataset
        return [*map(to_bytes, values), to_bytes(loader.collate_fn), outcome(to_bytes, model(words()))]

    expected = saved(lambda model: None)
    with recording(tmp_path / "run", level=level) as found:
        assert saved(found.start) == expected
        found.stop()


FUNCTIONS: list[Any] = [
    F.gelu, F.relu, F.max_pool2d, F.cross_entropy, F.scaled_dot_product_attention, torch.relu, torch.add,
    torch.einsum, torch.stft, torch.Tensor.add, torch.Tensor.__matmul__, torch.nn.init.xavier_uniform_,
    torch.ops.aten.add.Tensor,
]  # fmt: skip


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_functions_of_torch_are_pickled_by_their_names(tmp_path: Path, level: str) -> None:
    def told() -> list[Any]:
        return [
            (
                outcome(pickle.dumps, function),
                outcome(inspect.signature, function),
                copy.copy(function) is function,
            )
            for function in FUNCTIONS
        ]

    expected = told()
    with recording(tmp_path / "run", level=level) as found:
        found.start(net())
        assert told() == expected
        found.stop()


def test_a_collective_is_pickled_as_the_function_that_it_is(tmp_path: Path) -> None:
    gather = torch.distributed.all_gather_into_tensor
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        seen = torch.distributed.all_gather_into_tensor
        assert pickle.loads(pickle.dumps(seen)) is gather and b"probe" not in pickle.dumps(seen)
        assert copy.deepcopy(seen) is gather
        found.stop()


def test_a_model_whose_tokens_are_counted(tmp_path: Path) -> None:
    expected = to_bytes(net())
    with recording(tmp_path / "run", level="L0") as found:
        model = net()
        found.debugger.start(model=model, token_range=[1, 1])
        for _ in range(3):
            assert to_bytes(model) == expected
            model(words())
        found.stop()
    assert "Module.up.Linear.forward.0" in found.records()
    assert "Module.up.Linear.forward.1" not in found.records()


@pytest.mark.parametrize("backward", [False, True])
def test_a_tensor_that_was_saved_as_a_variable(tmp_path: Path, backward: bool) -> None:
    tensor = torch.ones(2, requires_grad=True) * 2
    expected = outcome(to_bytes, tensor)  # type: ignore[arg-type]
    with recording(tmp_path / "run", level="debug") as found:
        found.debugger.save(tensor, "tensor", save_backward=backward)
        assert outcome(to_bytes, tensor) == expected  # type: ignore[arg-type]
        found.stop()


@pytest.mark.parametrize("recorder", [{"level": "L0"}, {"level": "L0", "compile": "tap"}])
def test_hidden_hooks_leave_nothing_behind(tmp_path: Path, recorder: dict[str, Any]) -> None:
    import copyreg

    reducer, filters = copyreg.dispatch_table.get(OrderedDict), list(warnings.filters)
    model = hooked()
    before = dicts_of_hooks(model)
    with recording(tmp_path / "run", **recorder) as found:
        found.start(model)
        twin = copy.copy(model)
        assert pickle.dumps(OrderedDict(a=1)) == pickle.dumps(OrderedDict([("a", 1)]))
        step(model)
        found.stop()
    assert copyreg.dispatch_table.get(OrderedDict) is reducer and list(warnings.filters) == filters
    assert dicts_of_hooks(model) == dicts_of_hooks(twin) == before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["export", "trace"])
def test_an_export_is_no_part_of_the_step(tmp_path: Path, way: str) -> None:
    records = []
    for exported in (False, True):
        with recording(tmp_path / f"run{exported}", level="mix") as found:
            model = net()
            found.start(model)
            if exported:
                GRAPHS[way](model)
            step(model)
            found.stop()
        records.append([name for name in found.records() if "Functional" in name or "Module" in name])
    assert records[0] == records[1]


@pytest.mark.filterwarnings("error", "ignore:Guards may run slower on Python 3.13.0")
def test_a_compiled_module_warns_of_no_hooks(tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(2, 2))
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(1, 2))
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        compiled(torch.ones(1, 2))
        found.stop()
    assert "Module.0.Linear.forward.0" in found.records()


SPAWNED = """\
    import torch
    from support.programs import saved_models
    from pathlib import Path

    if __name__ == "__main__":
        from support.runs.recording import recording

        with recording(Path("run"), level="mix") as found:
            context = torch.multiprocessing.get_context("spawn")
            queue, answers = context.Queue(), context.Queue()
            process = context.Process(target=saved_models.at_work, args=(queue, answers))
            process.start()
            model = saved_models.net()
            found.start(model)
            saved_models.step(model)
            sent = [model, model.up.weight]
            queue.put(sent)
            answer, modules = answers.get(timeout=300)
            queue.put(None)
            process.join(300)
            plain = [value.detach() if isinstance(value, torch.Tensor) else value for value in sent]
            assert answer == saved_models.to_bytes(plain), "other bytes"
            assert not modules, modules
            found.stop()
        print("sent")
"""


def test_a_model_is_sent_to_a_process(tmp_path: Path) -> None:
    (tmp_path / "send.py").write_text(textwrap.dedent(SPAWNED))
    assert run("send.py", cwd=tmp_path).stdout == "sent\n"
