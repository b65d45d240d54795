"""ConfigChecker in PyTorch scripts: what it collects, and that it changes nothing."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_check import ConfigChecker
from probe_check.config_check import checker, random_log
from probe_check.config_check.pack import open_pack

from probe_core.errors import UserError


@pytest.fixture(autouse=True)
def patches_are_removed() -> Iterator[None]:
    yield
    random_log.RANDOM_LOG.remove()


def train(pack: Path | None, seed: int = 1) -> list[Any]:
    """Return the numbers of a training that draws from all generators; a pack is written if one is named."""
    random.seed(0)
    np.random.seed(0)
    if pack is not None:
        ConfigChecker.apply_patches("pytorch")
    torch.manual_seed(seed)
    numbers: list[Any] = [random.random(), random.choice([1, 2, 3]), np.random.rand(), np.random.randint(9)]
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    if pack is not None:
        ConfigChecker(model, output_zip_path=str(pack))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(12):
        noise = torch.rand(2).sum() + torch.empty(2).exponential_().sum()
        loss = model(torch.randn(8, 4)).pow(2).mean() + noise
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        numbers.append(loss.item())
    numbers += [parameter.tolist() for parameter in model.parameters()]
    return [*numbers, random.random(), np.random.rand(), torch.rand(1).item()]


def test_results_have_the_same_bits_with_the_checker(tmp_path: Path) -> None:
    assert train(tmp_path / "pack.zip") == train(None)
    with zipfile.ZipFile(tmp_path / "pack.zip") as pack:
        assert pack.testzip() is None
        names = set(pack.namelist())
    assert {"env", "pip", "random/rank0.json"} <= names
    steps = {f"{item}/step{step}/rank0" for item in ("dataset", "weights") for step in range(10)}
    assert {name.rpartition("/")[0] for name in names if name.startswith(("dataset", "weights"))} == steps
    assert {f"step{step}/rank0/conditions.json" for step in range(10)} <= names


def test_two_equal_trainings_agree_and_a_seed_is_named(tmp_path: Path, probe: Any) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / f"{name}.zip", seed)
    a, b, c, out = (tmp_path / name for name in ("a.zip", "b.zip", "c.zip", "out"))
    assert probe("config-check", "-c", a, b, "-o", out, "--fail-on", "warning") == 0, probe.out
    assert probe.out.startswith("The configurations agree in all that was compared")
    assert probe("config-check", "-c", a, c, "-o", out) == 0
    assert probe.out.startswith("The random seed of torch differs (2 against 1)"), probe.out
    assert "the weight 0.weight differs" in probe.out and "the batch (args.0) differs" in probe.out


def packed(path: Path, name: str) -> Any:
    with zipfile.ZipFile(path) as pack:
        return json.loads(pack.read(name))


def test_statistics_are_those_of_torch(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low = torch.nn.Parameter(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
            self.scalar = torch.nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
            self.empty = torch.nn.Parameter(torch.zeros(0))

        def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            return self.scalar

    net = Net()
    ConfigChecker(net, output_zip_path=str(tmp_path / "pack.zip"))
    inputs = [
        torch.tensor([[True, False]]),
        torch.arange(4),
        torch.tensor([float("nan"), 1.0]),
        torch.zeros(0),
        "x",
        None,
    ]
    net(
        {"a": torch.tensor([1 + 2j]), "b": [torch.tensor(2.0)]},
        inputs,
        mask=torch.ones(2, 2, dtype=torch.float16).t(),
    )
    weights = packed(tmp_path / "pack.zip", "weights/step0/rank0/weight.json")
    assert weights == {
        "low": {"max": 1.5, "min": -2.0, "mean": -0.25, "norm": 2.5}, "scalar": dict.fromkeys(("max", "min", "mean", "norm"), 3.0)
    }  # fmt: skip
    dataset = packed(tmp_path / "pack.zip", "dataset/step0/rank0/dataset.json")
    first, second = dataset["args"]["0"], dataset["args"]["1"]
    assert first["a"] == {"max": 2.0, "min": 1.0, "mean": 1.5, "norm": pytest.approx(5**0.5)}
    assert first["b"]["0"]["norm"] == 2.0
    assert second["0"] == {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0}
    assert second["1"]["mean"] == 1.5
    assert np.isnan(second["2"]["max"])
    assert [second[name] for name in "345"] == ["", "", ""]
    assert dataset["kwargs"]["mask"]["norm"] == 2.0


def test_random_calls_are_counted_by_their_stacks(tmp_path: Path) -> None:
    before = torch.rand, random.random, np.random.rand, torch.Tensor.exponential_
    ConfigChecker.apply_patches("pytorch")
    ConfigChecker.apply_patches("pytorch")
    assert torch.rand is not before[0]
    for _ in range(3):
        torch.rand(2)
    torch.manual_seed(3)
    torch.empty(3).exponential_()
    random.random()
    np.random.normal()
    model = torch.nn.Linear(2, 2)
    ConfigChecker(model, output_zip_path=str(tmp_path / "pack.zip"))
    model(torch.ones(1, 2))
    assert (torch.rand, random.random, np.random.rand, torch.Tensor.exponential_) == before
    calls = packed(tmp_path / "pack.zip", "random/rank0.json")
    assert {name: [one["count"] for one in stacks] for name, stacks in calls.items()} == {
        "torch.rand": [3], "torch.manual_seed": [1], "torch.Tensor.exponential_": [1], "random.random": [1],
        "np.random.normal": [1],
    }  # fmt: skip
    assert calls["torch.rand"][0]["stack"][-1].endswith(
        "in test_random_calls_are_counted_by_their_stacks, torch.rand(2)"
    )


COMPILED = """
import torch
from probe_check import ConfigChecker
ConfigChecker.apply_patches()

def draw(x):
    return x + torch.rand(2) + torch.randn_like(x) + torch.empty(2).exponential_()

torch.manual_seed(0)
expected = draw(torch.ones(2))
model = torch.nn.Linear(2, 2)
ConfigChecker(model, output_zip_path="pack.zip")
for _ in range(2):  # while the functions are patched, and afterwards
    torch.manual_seed(0)
    assert torch.equal(torch.compile(draw, backend="eager", fullgraph=True)(torch.ones(2)), expected)
    torch._dynamo.reset()
    model(torch.ones(1, 2))
"""


@pytest.mark.slow
def test_patched_functions_are_compiled_like_the_originals(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", COMPILED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_patched_functions_equal_the_originals() -> None:
    originals = torch.rand, torch.Tensor.exponential_
    ConfigChecker.apply_patches("pytorch")
    assert torch.rand == originals[0] and originals[0] == torch.rand and hash(torch.rand) == hash(originals[0])
    assert torch.rand != torch.randn
    assert torch.Tensor.exponential_ == originals[1]
    assert torch.empty(2).exponential_(2.0).shape == (2,)
    assert pickle.loads(pickle.dumps(torch.Tensor.exponential_)) is originals[1]
    assert pickle.loads(pickle.dumps(np.random.rand))(2).shape == (2,)
    assert torch.rand.__qualname__ == originals[0].__qualname__
    random_log.RANDOM_LOG.remove()
    assert "exponential_" not in vars(torch.Tensor)


def test_other_ranks_add_inputs_and_weights_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setattr("probe_check.config_check.pack_file._BEGUN_PACKS", set())
        model = torch.nn.Linear(2, 2)
        ConfigChecker(model, output_zip_path=str(tmp_path / "pack.zip"), steps=1)
        model(torch.ones(1, 2))
        model(torch.ones(1, 2))
    pack = open_pack(tmp_path / "pack.zip")
    assert {name for name in pack.list_members() if "rank1" in name} == {
        "dataset/step0/rank1/dataset.json", "weights/step0/rank1/weight.json", "step0/rank1/conditions.json",
    }  # fmt: skip
    assert {"env", "pip", "random/rank0.json", "weights/step0/rank0/weight.json"} <= {*pack.list_members()}
    pack.close()


def test_a_second_checker_replaces_the_pack(tmp_path: Path) -> None:
    for steps in (3, 1):
        model = torch.nn.Linear(2, 2)
        ConfigChecker(model, output_zip_path=str(tmp_path / "pack.zip"))
        for _ in range(steps):
            model(torch.ones(1, 2))
    names = [name for name in open_pack(tmp_path / "pack.zip").list_members() if name.startswith("weights")]
    assert names == ["weights/step0/rank0/weight.json"]


def test_a_failed_write_does_not_end_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Linear(2, 2)
    ConfigChecker(model, output_zip_path=str(tmp_path / "pack.zip"))
    (tmp_path / "pack.zip").unlink()
    (tmp_path / "pack.zip").mkdir()
    for _ in range(3):
        model(torch.ones(1, 2))
    assert capsys.readouterr().err.count("config-check: pack of step 0 cannot be collected") == 1


def test_an_interrupted_write_leaves_the_earlier_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 2)
    ConfigChecker(model, output_zip_path=str(tmp_path / "pack.zip"))
    model(torch.ones(1, 2))
    before = (tmp_path / "pack.zip").read_bytes()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(zipfile.ZipFile, "_write_end_record", interrupted)
        model(torch.ones(1, 2))
    assert (tmp_path / "pack.zip").read_bytes() == before


def test_arguments_of_megatron_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = type("Namespace", (), {})()
    vars(arguments).update(
        lr=0.1, hf_token="abc", params_dtype=torch.bfloat16, betas=(0.9, 0.95), timer=object(), path=Path("/a"), none=None
    )  # fmt: skip
    module = type("megatron", (), {"get_args": staticmethod(lambda: arguments)})
    monkeypatch.setitem(sys.modules, "megatron.training", module)
    ConfigChecker(output_zip_path=str(tmp_path / "pack.zip"))
    assert packed(tmp_path / "pack.zip", "hyperparameters/hyperparameters_dynamic.json") == {
        "lr": 0.1, "hf_token": "(hidden)", "params_dtype": "torch.bfloat16", "betas": [0.9, 0.95], "timer": None,
        "path": "/a", "none": None,
    }  # fmt: skip


def test_arguments_of_megatron_that_come_later_are_collected_at_the_first_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = [{}, {"lr": 1}]
    monkeypatch.setattr(checker, "read_megatron_arguments", lambda: found.pop(0))
    model = torch.nn.Linear(2, 2)
    ConfigChecker([model], output_zip_path=str(tmp_path / "pack.zip"))
    model(torch.ones(1, 2))
    assert packed(tmp_path / "pack.zip", "hyperparameters/hyperparameters_dynamic.json") == {"lr": 1}


def test_conditions_are_those_of_the_recorder(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    ConfigChecker(model, output_zip_path=str(tmp_path / "pack.zip"))
    model(torch.ones(1, 2))
    conditions = packed(tmp_path / "pack.zip", "step0/rank0/conditions.json")
    assert conditions["facts"].keys() == {
        "environment",
        "numerics",
        "data",
        "versions",
        "devices",
        "layout",
        "source",
    }
    assert conditions["facts"]["versions"]["torch"] == torch.__version__
    assert conditions["facts"]["numerics"]["training"] is True
    assert conditions["batch"].keys() == {"input.0"}
    assert [sample["point"] for sample in conditions["random"]] == ["forward"]


def test_nothing_is_recorded_of_the_checker_by_a_mode_of_the_program(tmp_path: Path) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def calls(model: torch.nn.Module) -> list[str]:
        seen.clear()
        with Functions(), Dispatches():
            model(torch.ones(1, 2))
        return list(seen)

    plain, checked = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    ConfigChecker(checked, output_zip_path=str(tmp_path / "pack.zip"))
    assert calls(checked) == calls(plain)


def test_compare_is_the_command(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ConfigChecker(output_zip_path=str(tmp_path / f"{name}.zip"))
    ConfigChecker.compare(str(tmp_path / "a.zip"), str(tmp_path / "b.zip"), str(tmp_path / "out"))
    assert (tmp_path / "out" / "result.xlsx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 1}, "not a torch.nn.Module"),
        ({"output_zip_path": "pack.tar"}, "must end in .zip"),
        ({"fmk": "jax"}, "invalid value for fmk"),
        ({"shell_path": ["absent.sh"]}, "absent.sh not found"),
        ({"shell_path": "absent.sh"}, "absent.sh not found"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        ConfigChecker(**arguments)
