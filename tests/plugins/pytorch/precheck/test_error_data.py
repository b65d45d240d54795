"""The saved data of a call, and the script that shows it where there is torch and nothing else (guide 13)."""

from __future__ import annotations

import ast
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from probe_pytorch.precheck.error_data import ReproductionData, format_literal, format_script
from probe_pytorch.precheck.raising import DtypeConversion, iterate_tensors
from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.runner import PyTorchRunner
from support.cases import every
from support.programs import preloaded
from support.runs.prechecked import ERROR, PASS, Checked, call, leaf, live, value, written
from support.runs.recorded import forward
from torch.nn import functional as F

inf, nan = math.inf, math.nan
NUMBERS = re.compile(r"^((?:for|back)ward\.output\.\d+) .*cosine (\S+) +max abs error (\S+) ")
ALONE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0].startswith("probe") or name in ("yaml", "click", "pluggy"):
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
scripts, sys.argv[1:] = sys.argv[1:], ["cpu"]
for script in scripts:
    print("SCRIPT", script)
    runpy.run_path(script, run_name="__main__")
assert not [name for name in sys.modules if name.split(".")[0] in ("probe_core", "probe_pytorch", "probe_metrics")]
"""
"""Runs scripts where nothing of probe can be imported, on the CPU."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


def saved(path: Path, program: Callable[[], object], name: str, **options: Any) -> tuple[Checked, Path]:
    """A call and its saved script."""
    directory = path / "data"
    directory.mkdir()
    calls = live(path / "run", program, error_directory=directory, **options)
    found = calls[name]
    assert found.outcome.kept is not None, found.text
    return found, calls.save(found)


KERNELS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE")
"""Variables that choose kernels, which round in different places."""


def run_alone(*scripts: Path) -> list[str]:
    """Run each script in an environment of its own: no probe, another directory, the same kernels."""
    kernels = {name: os.environ[name] for name in KERNELS if name in os.environ}
    done = preloaded.run(
        [sys.executable, "-I", "-c", ALONE, *map(str, scripts)],
        cwd="/",
        env={"PATH": os.defpath, "OMP_NUM_THREADS": "1", **kernels},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("SCRIPT ")[1:]


def printed(text: str) -> dict[str, tuple[float, float]]:
    """Cosine and max abs error by output."""
    matches = [NUMBERS.match(line) for line in text.splitlines()]
    return {match[1]: (float(match[2]), float(match[3])) for match in matches if match}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# files


def test_names_and_values(tmp_path: Path) -> None:
    """Inputs as they were in the run, outputs of both sides, gradients; keywords do not overwrite arguments."""
    x, w, b = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True), torch.randn(2)
    gradient = torch.randn(4, 2)
    found, script = saved(tmp_path, lambda: (F.linear(x, w, bias=b) * gradient).sum().backward(), "Functional.linear.0")
    name = "Functional.linear.0"
    assert script.name == f"{name}.py"
    assert names(script.parent) == {
        f"{name}.py", f"{name}.forward.input.0.pt", f"{name}.forward.input.1.pt", f"{name}.forward.kwargs.bias.pt",
        f"{name}.forward.output.bench.0.pt", f"{name}.forward.output.device.0.pt", f"{name}.backward.input.0.pt",
        *(f"{name}.backward.output.{side}.{i}.pt" for side in ("bench", "device") for i in (0, 1)),
    }  # fmt: skip

    def load(part: str) -> torch.Tensor:
        tensor = torch.load(script.parent / f"{name}.{part}.pt", weights_only=True)
        assert isinstance(tensor, torch.Tensor)
        assert not tensor.requires_grad
        return tensor

    for part, original in (("forward.input.0", x), ("forward.input.1", w), ("forward.kwargs.bias", b)):
        assert torch.equal(load(part), original)
    assert torch.equal(load("backward.input.0"), gradient)
    assert load("forward.output.bench.0").dtype is torch.float64
    assert torch.equal(load("forward.output.device.0"), F.linear(x, w, b))
    assert torch.equal(load("backward.output.device.0"), gradient @ w)
    assert found.statuses == (PASS, PASS)


def test_names_inside_of_lists(tmp_path: Path) -> None:
    """A number more for each tensor in a list."""
    a, b = torch.randn(2), torch.randn(3)
    _, script = saved(tmp_path, lambda: torch.cat([a, b]), "Torch.cat.0")
    files = {name for name in names(script.parent) if ".input." in name}
    assert files == {"Torch.cat.0.forward.input.0.0.pt", "Torch.cat.0.forward.input.0.1.pt"}
    assert torch.equal(torch.load(script.parent / "Torch.cat.0.forward.input.0.1.pt", weights_only=True), b)


def test_inputs_of_calls_in_place_are_those_before(tmp_path: Path) -> None:
    x = torch.randn(4)
    before = x.clone()
    _, script = saved(tmp_path, lambda: x.add_(1.0), "Tensor.add_.0")
    assert torch.equal(torch.load(script.parent / "Tensor.add_.0.forward.input.0.pt", weights_only=True), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int8, torch.complex64])
def test_dtypes_and_odd_values_survive(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.tensor([1.5, -0.0, inf, nan]).to(dtype) if dtype.is_floating_point else torch.tensor([1, 0]).to(dtype)
    _, script = saved(tmp_path, lambda: torch.reshape(x, (2, -1)), "Torch.reshape.0")
    found = torch.load(script.parent / "Torch.reshape.0.forward.input.0.pt", weights_only=True)
    assert found.dtype is dtype
    assert torch.equal(
        found.nan_to_num(7) if dtype.is_floating_point else found,
        x.nan_to_num(7) if dtype.is_floating_point else x,
    )
    assert found.tolist()[1] == x.tolist()[1]


def test_skipped_calls_save_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    calls = written(
        tmp_path / "run", {"Torch.nothing.0.forward": forward(leaf(torch.ones(2)))}, error_directory=directory
    )
    found = calls["Torch.nothing.0"]
    assert calls.runner.save(found.call, found.outcome) == ""
    assert names(directory) == set()


# scripts

SCALE = torch.full((3, 4), 1.25)


def conv() -> object:
    return F.conv1d(torch.randn(2, 3, 9), torch.randn(4, 3, 2), stride=2, padding=1)


def step(
    function: Callable[[torch.Tensor], Any], *shape: int, dtype: torch.dtype = torch.float32
) -> Callable[[], object]:
    """Forward and backward of a function of one tensor."""

    def program() -> None:
        x = torch.randn(shape).to(dtype).requires_grad_()
        outputs = [o for o in iterate_tensors(function(x * 1)) if o.requires_grad]
        sum((o * torch.randn(o.shape).to(dtype)).sum() for o in outputs).backward()

    return program


def in_place() -> None:
    x = torch.randn(3, 4, requires_grad=True) * 1
    x.mul_(SCALE).sum().backward()


def assign() -> None:
    x = torch.randn(4, 5)
    x[1:3, ..., None] = inf


def autocast() -> None:
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(x, w)
    y.sum().backward()


def normalised() -> object:
    x, mean, var = torch.randn(9, 3), torch.zeros(3), torch.ones(3)
    return F.batch_norm(x, mean, var, torch.rand(3), torch.rand(3), training=True, momentum=0.2)


SCRIPTS: dict[str, tuple[str, Callable[[], object]]] = {
    "keywords": (
        "Functional.layer_norm.0",
        step(lambda x: F.layer_norm(x, (5,), weight=torch.rand(5), eps=1e-3), 4, 5),
    ),
    "lists": ("Torch.cat.0", step(lambda x: torch.cat([x, 2 * x, torch.ones(1, 5)]), 4, 5)),
    "tuples": ("Functional.pad.0", step(lambda x: F.pad(x, (1, 0, 2, 1), value=-inf), 4, 5)),
    "slices": ("Tensor.__setitem__.0", assign),
    "dtype": ("Torch.sum.0", step(lambda x: torch.sum(x, dim=[0], dtype=torch.float32), 4, 5)),
    "infinite": ("Torch.clamp.0", step(lambda x: torch.clamp(x, min=-inf, max=0.5), 4, 5)),
    "in place": ("Tensor.mul_.0", in_place),
    "batch norm": ("Functional.batch_norm.0", normalised),
    "autocast": ("Functional.linear.0", autocast),
    "bfloat16": ("Torch.matmul.0", step(lambda x: torch.matmul(x, x), 6, 6, dtype=torch.bfloat16)),
    "float16": ("Functional.softmax.0", step(lambda x: F.softmax(x, -1), 6, 6, dtype=torch.float16)),
    "hf32": ("Functional.conv1d.0", conv),
    "several outputs": ("Torch.split.0", step(lambda x: torch.split(x, [1, 3], 1), 5, 4)),
    "topk": ("Torch.topk.0", step(lambda x: torch.topk(x, 2), 5, 4)),
    "recurrent": ("VF.gru.0", step(lambda x: torch.nn.GRU(4, 3)(x), 5, 2, 4)),
    "attention": (
        "Functional.scaled_dot_product_attention.0",
        step(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2), 1, 2, 4, 3),
    ),
    "operator": ("Tensor.__rsub__.0", step(lambda x: 1 - x, 4, 5)),
    "power": ("Tensor.__pow__.0", step(lambda x: x**2, 4, 5)),
}


def has_half_softmax() -> bool:
    try:
        F.softmax(torch.ones(2, dtype=torch.float16), -1)
    except RuntimeError:
        return False
    return True


HALF_SOFTMAX = has_half_softmax()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Checked, str]]:
    """Each case, and what its script prints; all in one process, for torch takes long to import."""
    calls = {}
    for case, (name, program) in SCRIPTS.items():
        if case == "float16" and not HALF_SOFTMAX:
            continue
        torch.manual_seed(5)
        calls[case] = saved(tmp_path_factory.mktemp("case"), program, name)
    texts = run_alone(*(script for _, script in calls.values()))
    return {case: (found, text) for (case, (found, _)), text in zip(calls.items(), texts, strict=True)}


@pytest.mark.parametrize("case", SCRIPTS)
def test_the_script_prints_what_the_details_say(shown: dict[str, tuple[Checked, str]], case: str) -> None:
    """With torch and without probe, each output's cosine and max abs error agree to the printed digits."""
    if case not in shown:
        pytest.skip("this torch has no softmax of float16 on the CPU")
    found, text = shown[case]
    lines = printed(text)
    name = found.call.name
    rows = {detail.name.removeprefix(f"{name}."): detail.numbers for detail in found.result.details}
    compared = 0
    for output, numbers in rows.items():
        if "max_abs_error" in numbers:
            assert lines[output][1] == pytest.approx(numbers["max_abs_error"], rel=1e-3, abs=1e-12), output
            compared += 1
        if "cosine" in numbers:
            assert lines[output][0] == pytest.approx(numbers["cosine"], abs=2e-9), output
    assert compared


def test_the_script_has_a_line_for_each_output(shown: dict[str, tuple[Checked, str]]) -> None:
    for case, (found, text) in shown.items():
        head, *lines = text.splitlines()[1:]
        assert head == f"{found.call.name} on cpu against the CPU in higher precision - torch {torch.__version__}"
        rows = [detail.name for detail in found.result.details if detail.device_dtype]
        assert [f"{found.call.name}.{line.split()[0]}" for line in lines] == rows, case


def test_the_script_counts_elements_of_integers_and_shows_inf(shown: dict[str, tuple[Checked, str]]) -> None:
    assert "10 inf or nan" in shown["slices"][1]
    assert "0 of 10 elements differ" in shown["topk"][1]


def test_texts_of_a_record_are_no_part_of_the_program() -> None:
    """Not even where they look like the marks of the template, or a name like the end of a docstring."""
    texts = ["@KEYWORDS@", "@OUTPUTS@", '"""', "'"]
    arguments, nothing = Arguments(texts, {"' or made() or '": 1}), cast(Any, None)
    kept = ReproductionData(arguments, (), nothing, nothing, None, None, DtypeConversion(), None, False)
    text = format_script(call('Torch.add.0"""+made()+"""'), "Torch.add.0", kept, torch.device("cpu"))
    tree = ast.parse(text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "made"]
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {*texts, "' or made() or '"} <= found


def test_the_data_show_a_fault_of_a_replaced_kernel(tmp_path: Path) -> None:
    """A kernel that took the place of torch's function is not in the script, the saved output of it is."""
    runner = PyTorchRunner({"Functional.relu": lambda x: torch.relu(x) * 1.5})
    found, script = saved(tmp_path, lambda: F.relu(torch.randn(30)), "Functional.relu.0", runner=runner)
    assert found.result.forward is ERROR
    sides = [
        torch.load(script.parent / f"Functional.relu.0.forward.output.{side}.0.pt", weights_only=True)
        for side in ("device", "bench")
    ]
    torch.testing.assert_close(sides[0].double(), sides[1] * 1.5)
    assert "cosine 1.000000000" in run_alone(script)[0], "torch's own function is right"


def test_the_script_of_a_fused_operator(tmp_path: Path) -> None:
    """Not to be run here; it compiles, calls torch_npu, and takes the saved reference."""
    directory = tmp_path / "data"
    directory.mkdir()
    calls = written(tmp_path / "run", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))}, error_directory=directory)
    name = "NPU.npu_rms_norm.0"
    x = torch.randn(3, 8, requires_grad=True)
    calls.calls[name] = call(
        name,
        leaf(x),
        leaf(torch.randn(8)),
        epsilon=value(1e-6),
        backward={"input": [leaf(torch.randn(3, 8)), None]},
    )
    script = calls.save(calls[name])
    text = script.read_text("utf-8")
    compile(text, script.name, "exec")
    assert "import torch_npu\n" in text
    assert "torch_npu.npu_rms_norm(*positional, **keywords)" in text
    assert f"SAVED = '{name}'" in text
    assert {f"{name}.forward.output.bench.0.pt", f"{name}.backward.output.bench.0.pt"} <= names(directory)
    done = preloaded.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert "No module named 'torch_npu'" in done.stderr


def stand_in(directory: Path) -> None:
    """A torch_npu of its own, for scripts."""
    (directory / "torch_npu.py").write_text(
        "def npu_rms_norm(x, gamma, epsilon=1e-6):\n"
        "    rstd = (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()\n"
        "    return x * rstd * gamma * 1.01, rstd\n"
    )


def test_the_script_takes_the_saved_reference(tmp_path: Path) -> None:
    """With an operator that is one percent off, found by the numbers that are printed."""
    directory = tmp_path / "data"
    directory.mkdir()
    calls = written(tmp_path / "run", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))}, error_directory=directory)
    name = "NPU.npu_rms_norm.0"
    calls.calls[name] = call(name, leaf(torch.randn(3, 8)), leaf(torch.rand(8) + 1))
    script = calls.save(calls[name])
    stand_in(directory)
    done = preloaded.run([sys.executable, script, "cpu"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "against saved reference" in done.stdout
    bench = torch.load(directory / f"{name}.forward.output.bench.0.pt", weights_only=True)
    (first, *_) = [m for m in map(NUMBERS.match, done.stdout.splitlines()) if m]
    assert float(first[3]) == pytest.approx(float(bench.abs().max()) * 0.01, rel=2e-3)


# literals


@every(
    "item",
    [None, True, 3, -(2**70), 2.5, 5e-324, inf, -inf, "a'\"\\\n", [1, [2.0, None]], (1,), (1, (2, 3)), (), [],
     {"a": [1], "b c": None}, slice(1, None, -2), (slice(None), ..., None, 0), ..., torch.Size([2, 3]), torch.Size([]),
     torch.float64, torch.bfloat16, torch.channels_last, 1 + 2j],
)  # fmt: skip
def test_literals_are_python(item: Any) -> None:
    found = eval(format_literal(item, "x"), {"torch": torch})
    assert type(found) is type(item)
    assert found == item


def test_literals_of_nan_numpy_and_devices() -> None:
    import numpy as np

    assert math.isnan(eval(format_literal(nan, "x")))
    assert eval(format_literal(np.float32(2.5), "x")) == 2.5
    assert format_literal(torch.device("cuda:1"), "x") == "DEVICE"


def test_literals_of_arrays() -> None:
    import numpy as np

    found = eval(format_literal(np.array([1.5, 2.0]), "x"), {"np": np, "numpy": np, "torch": torch})
    assert np.asarray(found).tolist() == [1.5, 2.0]


def test_literals_of_complex_infinities() -> None:
    assert eval(format_literal(complex(inf, 0.0), "x"), {}) == complex(inf, 0.0)
