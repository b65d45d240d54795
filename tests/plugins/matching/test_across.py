"""MindSpore runs with each other, and with PyTorch runs of the same model and weights (recorder of 26.2.0)."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from probe_matching.api import NameRule, NameTable
from probe_pytorch.reader import PyTorchReader
from support import DATA
from support.probe import Probe
from support.runs.comparing import compare
from support.runs.recorded import forward, scalar, tensor, write_run

from probe_core.model import Level
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.blame import Origin
from probe_core.plugins.manager import Contribution, Manager, Plugin

Rows = list[dict[str, Any]]
MISSING_IN_TORCH = {"reshape", "permute", "chunk", "split", "transpose"}
"""Calls that the recorder of the PyTorch runs leaves out."""
IN_PARTS = ("Primitive.", "Functional.conv2d", "Functional.linear.4", "Tensor.add_")
"""Calls that the frameworks make in other parts: a convolution and its bias, a layer's matmul and its bias."""

SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Older Pythons have no such filter."""


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of one model: ms_… and pt_… of both frameworks, msbug_… with a wrong gradient."""
    root = tmp_path_factory.mktemp("runs-mindspore-pairs")
    with tarfile.open(DATA / "runs-mindspore-pairs.tar.xz") as file:
        file.extractall(root, **SAFELY)
    return root


def compared(target: Path, golden: Path, out: Path, **fields: Any) -> tuple[Report, Rows]:
    options = {name: fields.pop(name) for name in [*fields] if name.endswith("_mapping")}
    plan = Plan(target, golden, out, "0", formats=("jsonl",), **fields, options=options)
    (report,) = compare(plan, Manager())
    (path,) = out.glob("*compare_result*.jsonl")
    return report, [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def op_of(name: str) -> str:
    """The record that a row belongs to."""
    name = re.sub(r"(parameters_grad(?:\.0)?)\..*", r"\1", name)
    return re.sub(r"\.(input|output|parameters)(\..*)?$", "", name)


def ops(rows: Rows, column: str) -> set[str]:
    return {op_of(row[column]) for row in rows} - {"N/A"}


def calls(rows: Rows) -> dict[str, set[str]]:
    """The calls of the golden that each call of the target stands beside."""
    found: dict[str, set[str]] = {}
    for row in rows:
        if "N/A" not in (row["NPU Name"], row["Bench Name"]):
            found.setdefault(op_of(row["NPU Name"]), set()).add(op_of(row["Bench Name"]))
    return found


def truth(name: str) -> str:
    """Return the name in PyTorch of a MindSpore call of the recorded model; both are one program."""
    name = name.replace("Cell.", "Module.").replace(".Dense.", ".Linear.")
    name = re.sub(r"^Mint\.", "Torch.", name)
    name = re.sub(r"^MintFunctional\.", "Functional.", name)
    return name.replace("Primitive.bn_train.BatchNorm", "Functional.batch_norm")


def is_comparable(name: str) -> bool:
    parts = name.split(".")
    return not name.startswith(IN_PARTS) and not (len(parts) > 1 and parts[1] in MISSING_IN_TORCH)


# -- MindSpore with MindSpore --------------------------------------------------------------------------------


def test_the_split_is_the_first_difference(pairs: Path, tmp_path: Path) -> None:
    bug, good = pairs / "msbug_mix_tensor", pairs / "ms_mix_tensor"
    report, _ = compared(bug, good, tmp_path, matcher="align", framework="mindspore")
    assert report.suspects[0].row == "Mint.split.0.backward.output.0"
    assert report.suspects[0].module == "Cell.block.attn.Attention.backward.0"


def test_the_first_difference_analysis_names_the_split(pairs: Path, tmp_path: Path, probe: Probe) -> None:
    for place, run in (("npu", "msbug_mix_tensor"), ("bench", "ms_mix_tensor")):
        for rank in range(2):
            source = pairs / (run if rank else "ms_mix_tensor")
            (tmp_path / place / "step0").mkdir(parents=True, exist_ok=True)
            (tmp_path / place / "step0" / f"rank{rank}").symlink_to(source)
    arguments = (tmp_path / "npu", tmp_path / "bench", "-o", tmp_path / "out", "-da", "--match", "align")
    assert probe("compare", "--framework", "mindspore", *arguments) == 0
    (path,) = (tmp_path / "out").rglob("diff_analyze_*.json")
    found = json.loads(path.read_text())
    assert {rank: [one["op_name"] for one in ops] for rank, ops in found.items()} == {
        "rank_1": ["Mint.split.0.backward"]
    }


@pytest.mark.parametrize("matcher", ["exact", "fuzzy", "align"])
def test_a_run_against_itself_names_nothing(matcher: str, pairs: Path, tmp_path: Path) -> None:
    report, rows = compared(pairs / "ms_mix_tensor", pairs / "ms_mix_tensor", tmp_path, matcher=matcher)
    assert report.level is Level.PASS
    assert not report.suspects and not report.notes
    assert all(row["NPU Name"] == row["Bench Name"] for row in rows)


# -- across frameworks ---------------------------------------------------------------------------------------

LEVELS = ["mix", "L0"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("swapped", [False, True], ids=["ms-pt", "pt-ms"])
def test_what_both_sides_have_is_paired_and_nothing_wrongly(
    level: str, swapped: bool, pairs: Path, tmp_path: Path
) -> None:
    runs = pairs / f"ms_{level}_tensor", pairs / f"pt_{level}_tensor"
    report, rows = compared(*(reversed(runs) if swapped else runs), tmp_path)
    own, other = ("Bench Name", "NPU Name") if swapped else ("NPU Name", "Bench Name")
    ours, theirs = ops(rows, own), ops(rows, other)
    expected = {name for name in ours if is_comparable(name) and truth(name) in theirs}
    assert len(expected) >= (80 if level == "mix" else 33)
    pairs_found = calls(rows)
    if swapped:
        pairs_found = inverted(pairs_found)
    right = {name for name in expected if pairs_found.get(name) == {truth(name)}}
    assert len(right) >= 0.95 * len(expected)
    wrong = {one: two for one, two in pairs_found.items() if is_comparable(one) and two != {truth(one)}}
    assert wrong == {}
    assert not report.counts.levels[Level.ERROR]
    assert not report.suspects


def inverted(found: dict[str, set[str]]) -> dict[str, set[str]]:
    turned: dict[str, set[str]] = {}
    for one, others in found.items():
        for other in others:
            turned.setdefault(other, set()).add(one)
    return turned


def test_single_level_runs_without_modules_are_paired_too(pairs: Path, runs: Any, tmp_path: Path) -> None:
    base = runs("ms_L1_tensor", "mindspore")
    report, rows = compared(base, pairs / "pt_L1_tensor", tmp_path)
    found = calls(rows)
    expected = {n for n in ops(rows, "NPU Name") if is_comparable(n) and truth(n) in ops(rows, "Bench Name")}
    assert len(expected) > 50 and all(found[name] == {truth(name)} for name in expected)
    assert not report.counts.levels[Level.ERROR]


def test_parts_of_a_layer_meet_the_whole_where_they_begin_and_end(pairs: Path, tmp_path: Path) -> None:
    _, rows = compared(pairs / "ms_mix_tensor", pairs / "pt_mix_tensor", tmp_path)
    names = {row["NPU Name"]: row["Bench Name"] for row in rows}
    assert names["Primitive.conv2d.Conv2D.0.forward.input.0"] == "Functional.conv2d.0.forward.input.0"
    assert names["Primitive.bias_add.BiasAdd.0.forward.output.0"] == "Functional.conv2d.0.forward.output.0"
    assert names["Primitive.conv2d.Conv2D.0.forward.output.0"] == "N/A"


def test_arguments_and_parameters_in_other_places_are_paired(pairs: Path, tmp_path: Path) -> None:
    _, rows = compared(pairs / "ms_mix_tensor", pairs / "pt_mix_tensor", tmp_path)
    names = {row["NPU Name"]: row["Bench Name"] for row in rows}
    norm, other = "Primitive.bn_train.BatchNorm.0.forward.", "Functional.batch_norm.0.forward."
    places = {1: 3, 2: 4, 3: 1, 4: 2}  # weight, bias, mean, variance
    assert all(names[f"{norm}input.{own}"] == f"{other}input.{place}" for own, place in places.items())
    cell, module = "Cell.bn.BatchNorm2d.forward.0.parameters.", "Module.bn.BatchNorm2d.forward.0.parameters."
    assert names[f"{cell}gamma"] == f"{module}weight" and names[f"{cell}beta"] == f"{module}bias"
    assert names["Cell.bn.BatchNorm2d.parameters_grad.0.gamma"] == "Module.bn.BatchNorm2d.parameters_grad.0.weight"


def test_spellings_of_a_dtype_and_an_unknown_requires_grad_are_no_difference(pairs: Path, tmp_path: Path) -> None:
    _, rows = compared(pairs / "ms_mix_tensor", pairs / "pt_mix_tensor", tmp_path)
    paired = [row for row in rows if "N/A" not in (row["NPU Name"], row["Bench Name"])]
    assert {row["NPU Dtype"] for row in paired} >= {"Float32"}
    assert {row["Bench Dtype"] for row in paired} >= {"torch.float32"}
    assert all(row["Requires_grad Consistent"] is True for row in paired)
    told = [row["NPU Name"] for row in paired if "Dtype" in row["Err_message"]]
    assert told == ["Functional.cross_entropy.0.forward.input.1"]  # Int32 labels, which PyTorch has as int64


def test_a_wrong_gradient_is_found_against_the_other_framework(pairs: Path, tmp_path: Path) -> None:
    report, _ = compared(pairs / "msbug_mix_tensor", pairs / "pt_mix_tensor", tmp_path)
    assert report.suspects[0].op == "Mint.split.0.backward"
    assert "and returns the value that MintFunctional.linear.0.backward receives" in report.suspects[0].why
    assert report.counts.levels[Level.ERROR] > 10


@pytest.mark.parametrize("framework", ["mindspore", "pytorch"])
def test_the_framework_of_one_side_is_enough(framework: str, pairs: Path, tmp_path: Path, probe: Probe) -> None:
    arguments = (pairs / "ms_L0_tensor", pairs / "pt_L0_tensor", "-o", tmp_path, "--format", "csv")
    assert probe("-f", framework, "compare", *arguments, "-am", "-cm") == 0
    assert " 0 fail, " in probe.out and "mindspore-to-pytorch" in probe.out


def test_bare_options_say_that_one_framework_needs_no_table(pairs: Path, tmp_path: Path, probe: Probe) -> None:
    run = pairs / "ms_L0_tensor"
    assert probe("compare", run, run, "-o", tmp_path, "--format", "csv", "-am") == 0
    assert "its names need no table" in probe.out


def test_without_the_plugin_for_names_equal_ones_are_paired(
    pairs: Path, tmp_path: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_PLUGINS", "pytorch,mindspore,metrics,reporters,diagnosis,precheck")
    run, other = pairs / "ms_mix_tensor", pairs / "pt_mix_tensor"
    assert probe("compare", run, other, "-o", tmp_path / "across", "--format", "csv") == 0
    assert "the target is of mindspore and the golden of pytorch; equal names are paired." in probe.out
    assert "comes with probe-matching" in probe.out and "Traceback" not in probe.err
    assert probe("compare", run, run, "-o", tmp_path / "alike", "--format", "csv") == 0
    assert " 0 fail, " in probe.out and "probe-matching" not in probe.out


def test_without_it_and_without_an_equal_name(tmp_path: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_PLUGINS", "pytorch,mindspore,metrics,reporters,diagnosis,precheck")
    target = mindspore_run(tmp_path / "ms", {"Mint.exp.0.forward": forward(tensor(), output=[tensor()])})
    golden = write_run(tmp_path / "pt", {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])})
    assert probe("compare", target, golden, "-o", tmp_path / "out") == 2
    assert "No row of the target has a partner" in probe.err and "comes with probe-matching" in probe.err


@pytest.mark.parametrize(
    "factory, says",
    [
        (dict, "TypeError: it must make a NameTable, not dict"),
        (lambda: NameTable(source={"jnp.exp": "Torch.exp"}), "a Dialect of each framework, not dict"),  # type: ignore[arg-type]
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_names_that_cannot_be_used_are_said_where_nothing_pairs(
    factory: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: Probe
) -> None:
    rule = NameRule("jax-names", "names", factory, source="jax", target="pytorch", origin=Origin("mine", "1"))
    contributions = Manager.contributions
    monkeypatch.setattr(
        Manager,
        "contributions",
        lambda self, kind: (
            [Contribution(rule, Plugin("mine", "mine", "1"))] if kind == "name_rules" else contributions(self, kind)
        ),
    )
    data = {"jnp.exp.0.forward": forward(tensor(), output=[tensor()])}
    target = write_run(tmp_path / "jax", data, framework="jax")
    golden = write_run(tmp_path / "pt", {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])})
    monkeypatch.setattr(PyTorchReader, "sniff", lambda self, path: 100)
    assert probe("compare", target, golden, "-o", tmp_path / "out", "--match", "exact") == 2
    assert "The target is of jax and the golden of pytorch" in probe.err
    assert 'The name rule "jax-names" of mine 1 failed' in probe.err and says in probe.err


# -- files that map names ------------------------------------------------------------------------------------


def mindspore_run(directory: Path, data: dict[str, Any], parents: dict[str, str] | None = None) -> Path:
    path = write_run(directory, data)
    path.write_text(path.read_text().replace('"pytorch"', '"mindspore"').replace("torch.float32", "Float32"))
    if parents:
        (directory / "construct.json").write_text(json.dumps(parents))
    return path


def names_of(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    return {row["NPU Name"]: row["Bench Name"] for row in rows}


def test_an_api_mapping_pairs_what_it_lists_and_nothing_else(tmp_path: Path) -> None:
    three = [tensor([n], float(n)) for n in (2, 3, 4)]
    target = mindspore_run(tmp_path / "ms", {"Mint.mine.0.forward": forward(*three, output=[tensor([5]), tensor([6])])})
    golden = write_run(tmp_path / "pt", {"Torch.theirs.0.forward": forward(three[1], three[0], output=[tensor([6])])})
    entry = {"ms_api": "Mint.mine", "pt_api": "Torch.theirs", "ms_args": [0, 1], "pt_args": [1, 0],
             "ms_outputs": [1], "pt_outputs": [0]}  # fmt: skip
    (tmp_path / "am.yaml").write_text(json.dumps([entry]))
    _, rows = compared(target, golden, tmp_path / "out", api_mapping=tmp_path / "am.yaml", matcher="exact")
    assert names_of(rows) == {
        "Mint.mine.0.forward.input.0": "Torch.theirs.0.forward.input.1",
        "Mint.mine.0.forward.input.1": "Torch.theirs.0.forward.input.0",
        "Mint.mine.0.forward.input.2": "N/A",
        "Mint.mine.0.forward.output.0": "N/A",
        "Mint.mine.0.forward.output.1": "Torch.theirs.0.forward.output.0",
    }


def test_an_entry_of_uneven_lists_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    run = {"Mint.abs.0.forward": forward(tensor(), output=[tensor()])}
    target = mindspore_run(tmp_path / "ms", run)
    golden = write_run(tmp_path / "pt", {"Torch.abs.0.forward": forward(tensor(), output=[tensor()])})
    entry = {"ms_api": "Mint.abs", "pt_api": "Torch.sin", "ms_args": [0, 1], "pt_args": [0]}
    (tmp_path / "am.yaml").write_text(json.dumps([entry]))
    report, rows = compared(target, golden, tmp_path / "out", api_mapping=tmp_path / "am.yaml")
    assert any("Mint.abs" in note and "2 values on one side and 1" in note for note in report.notes)
    assert "Torch.abs.0.forward.input.0" in names_of(rows).values()


def test_backward_calls_are_paired_by_their_forward_calls(tmp_path: Path) -> None:
    """One more call on one side, of the same shape: the numbers differ, and backward calls come in reverse."""

    def call(value: float) -> dict[str, Any]:
        return forward(tensor([2], value), output=[tensor([2], value + 10)])

    def back(value: float) -> dict[str, Any]:
        return {"input": [tensor([2], value + 20)], "output": [tensor([2], value + 30)]}

    values = {"ms": [1.0, 7.0, 2.0, 3.0], "pt": [1.0, 2.0, 3.0]}
    paths = []
    for side, scope in (("ms", "Mint"), ("pt", "Torch")):
        data = {f"{scope}.exp.{n}.forward": call(value) for n, value in enumerate(values[side])}
        data |= {f"{scope}.exp.{n}.backward": back(v) for n, v in reversed(list(enumerate(values[side])))}
        paths.append((mindspore_run if side == "ms" else write_run)(tmp_path / side, data))
    _, rows = compared(*paths, tmp_path / "out")
    found = calls(rows)
    for phase in ("forward", "backward"):
        assert {n: found.get(f"Mint.exp.{n}.{phase}") for n in range(4)} == {
            0: {f"Torch.exp.0.{phase}"}, 1: None, 2: {f"Torch.exp.1.{phase}"}, 3: {f"Torch.exp.2.{phase}"}
        }  # fmt: skip


def test_spellings_of_one_operation_are_paired(tmp_path: Path) -> None:
    two = forward(tensor([2], 1.0), tensor([2], 2.0), output=[tensor([2], 3.0)])
    shaped = forward(tensor([2, 3]), [scalar(3), scalar(2)], output=[tensor([3, 2])])
    spread = forward(tensor([2, 3]), scalar(3), scalar(2), output=[tensor([3, 2])])
    keyed = forward(tensor([2, 3]), output=[tensor([2])], axis=scalar(1), keep_dims=scalar(False))
    placed = forward(tensor([2, 3]), scalar(1), output=[tensor([2])], keepdim=scalar(False))
    target = mindspore_run(
        tmp_path / "ms",
        {"Tensor.__add__.0.forward": two, "Mint.add.0.forward": two, "Mint.reshape.0.forward": shaped,
         "Functional.mean.0.forward": keyed},
    )  # fmt: skip
    golden = write_run(
        tmp_path / "pt",
        {"Torch.add.0.forward": two, "Tensor.add.0.forward": two, "Tensor.reshape.0.forward": spread,
         "Torch.mean.0.forward": placed},
    )  # fmt: skip
    _, rows = compared(target, golden, tmp_path / "out")
    names = names_of(rows)
    assert names["Tensor.__add__.0.forward.input.1"] == "Torch.add.0.forward.input.1"
    assert names["Mint.add.0.forward.output.0"] == "Tensor.add.0.forward.output.0"
    assert names["Mint.reshape.0.forward.input.1.0"] == "Tensor.reshape.0.forward.input.1"
    assert names["Mint.reshape.0.forward.input.1.1"] == "Tensor.reshape.0.forward.input.2"
    assert names["Functional.mean.0.forward.input.axis"] == "Torch.mean.0.forward.input.1"
    assert names["Functional.mean.0.forward.input.keep_dims"] == "Torch.mean.0.forward.input.keepdim"


def test_a_known_difference_of_defaults_is_told_where_it_shows(tmp_path: Path) -> None:
    def module(kind: str, value: float) -> dict[str, Any]:
        return {f"{kind}.bn.BatchNorm2d.forward.0": forward(tensor([2]), output=[tensor([2], value)])}

    target = mindspore_run(tmp_path / "ms", module("Cell", 5.0))
    golden = write_run(tmp_path / "pt", module("Module", 1.0))
    report, _ = compared(target, golden, tmp_path / "out")
    assert any("momentum" in note for note in report.notes)
    assert report.advice is not None and "\nKnown difference: mindspore.nn.BatchNorm" in report.advice.text
    agreeing = write_run(tmp_path / "pt2", module("Module", 5.0))
    report, _ = compared(target, agreeing, tmp_path / "out2")
    assert not any("momentum" in note for note in report.notes)
    assert report.advice is not None and "Known difference" not in report.advice.text


CELLS = {"Cell.net.fc.Dense.forward.0": forward(tensor([2]), output=[tensor([3])])}
MODULES = {"Module.model.head.Linear.forward.0": forward(tensor([2]), output=[tensor([3])])}


@pytest.mark.parametrize(
    "mapping", [{"net.fc.Dense": "model.head.Linear"}, {"net.fc": "model.head"}], ids=["name", "part"]
)
def test_a_cell_mapping_renames_modules(mapping: dict[str, str], tmp_path: Path) -> None:
    target, golden = mindspore_run(tmp_path / "ms", CELLS), write_run(tmp_path / "pt", MODULES)
    (tmp_path / "cm.yaml").write_text(json.dumps({**mapping, "nowhere.at.All": "x.Y"}))
    report, rows = compared(target, golden, tmp_path / "out", cell_mapping=tmp_path / "cm.yaml")
    assert names_of(rows)["Cell.net.fc.Dense.forward.0.input.0"] == "Module.model.head.Linear.forward.0.input.0"
    assert any("nowhere.at.All" in note for note in report.notes)


@pytest.mark.parametrize("matcher", ["exact", "fuzzy", "align"])
def test_mappings_between_runs_of_one_framework_leave_the_rest_as_it_is(
    matcher: str, pairs: Path, tmp_path: Path
) -> None:
    run = pairs / "ms_mix_tensor"
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for name in ("dump.json", "construct.json"):
        text = (run / name).read_text().replace("Cell.block.", "Cell.body.").replace("Mint.chunk", "Mint.split")
        data_name = re.compile(r'("data_name": ")Cell.body.')
        (renamed / name).write_text(data_name.sub(r"\1Cell.block.", text).replace('": "Mint.split', '": "Mint.chunk'))
    (renamed / "dump_tensor_data").symlink_to(run / "dump_tensor_data")
    (tmp_path / "cm.yaml").write_text("block: body\n")
    (tmp_path / "am.yaml").write_text("- {ms_api: Mint.chunk, pt_api: Mint.split}\n")
    report, _ = compared(
        run,
        renamed,
        tmp_path / "out",
        matcher=matcher,
        cell_mapping=tmp_path / "cm.yaml",
        api_mapping=tmp_path / "am.yaml",
    )
    assert report.counts.target_only == report.counts.golden_only == 0
    assert report.level is Level.PASS


def test_a_layer_mapping_renames_children_class_by_class(tmp_path: Path) -> None:
    call = forward(tensor([2]), output=[tensor([2])])
    data = {f"Cell.net.layers.{n}.attention.Attention.forward.0": call for n in range(2)}
    other = {f"Module.model.blocks.{n}.self_attn.Attention.forward.0": call for n in range(2)}
    layer = {
        f"Cell.net.layers.{n}.attention.Attention.forward.0": f"Cell.net.layers.{n}.Layer.forward.0" for n in range(2)
    }
    layer |= {f"Cell.net.layers.{n}.Layer.forward.0": "Cell.net.Net.forward.0" for n in range(2)}
    target = mindspore_run(tmp_path / "ms", data, layer)
    golden = write_run(tmp_path / "pt", other)
    (tmp_path / "lm.yaml").write_text(
        "TopLayer: {net: model}\nNet: {layers: blocks}\nLayer: {attention: self_attn(extra)}\n"
    )
    _, rows = compared(target, golden, tmp_path / "out", layer_mapping=tmp_path / "lm.yaml")
    pairs_found = calls(rows)
    assert pairs_found == {one: {two} for one, two in zip(data, other)}
    import yaml

    written = {
        what: yaml.safe_load((tmp_path / "out" / f"{what}_mapping_0.yaml").read_text()) for what in ("api", "data")
    }
    assert written["api"] == dict(zip(data, other))
    assert written["data"][f"{next(iter(data))}.input.0"] == f"{next(iter(other))}.input.0"


def test_calls_in_layers_that_are_mapped_are_aligned(tmp_path: Path) -> None:
    """Two suites of one framework: other names of modules, and a call more in one of them."""

    def run(directory: Path, path: str, extra: bool) -> Path:
        data: dict[str, Any] = {}
        parents: dict[str, str] = {}
        counts = {"exp": 0, "sin": 0}
        for layer in range(3):
            module = f"Module.{path}.{layer}.Layer.forward.0"
            names = ["sin", "exp", "exp"] if extra and layer == 1 else ["sin", "exp"]
            for place, name in enumerate(names):
                key = f"Torch.{name}.{counts[name]}.forward"
                counts[name] += 1
                value = 10.0 * layer + (len(names) - place if name == "exp" else 5)
                data[key] = forward(tensor([2], value), output=[tensor([2], value)])
                parents[key] = module
            data[module] = forward(tensor([2], layer), output=[tensor([2], layer)])
            parents[module] = f"Module.{path.partition('.')[0]}.Net.forward.0"
        file = write_run(directory, data)
        (directory / "construct.json").write_text(json.dumps(parents))
        return file

    target, golden = run(tmp_path / "t", "net.layers", True), run(tmp_path / "g", "model.blocks", False)
    (tmp_path / "lm.yaml").write_text("TopLayer: {net: model}\nNet: {layers: blocks}\n")
    report, rows = compared(target, golden, tmp_path / "out", layer_mapping=tmp_path / "lm.yaml")
    found = names_of(rows)
    assert found["Module.net.layers.2.Layer.forward.0.input.0"] == "Module.model.blocks.2.Layer.forward.0.input.0"
    assert found["Torch.exp.1.forward.input.0"] == "N/A", "the call that the golden lacks"
    assert found["Torch.exp.3.forward.input.0"] == "Torch.exp.2.forward.input.0"
    assert not report.suspects and report.counts.golden_only == 0


def test_ranks_of_two_frameworks_pair(pairs: Path, tmp_path: Path, probe: Probe) -> None:
    for side, name in (("t", "ms_mix_tensor"), ("g", "pt_mix_tensor")):
        for rank in range(2):
            (tmp_path / side / "step0").mkdir(parents=True, exist_ok=True)
            (tmp_path / side / "step0" / f"rank{rank}").symlink_to(pairs / name)
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "out", "-j", "2") == 0
    assert "2 of 2 comparisons finished" in probe.out and "  all agree, so no call " in probe.out
    assert len(list((tmp_path / "out").glob("compare_result_rank[01]_*.xlsx"))) == 2


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("-am", "Mint.add: Torch.add", "is not a list of entries"),
        ("-am", "- {ms_api: Mint.add}", "does not name ms_api and pt_api"),
        ("-am", "- {ms_api: Mint.add, pt_api: Torch.add, ms_arg: [0]}", "Did you mean ms_args"),
        ("-cm", "- a", "does not map names to names"),
        ("-cm", "a: [", "is not valid yaml at line"),
        ("-lm", "a: b", "does not map names to names"),
        ("-lm", "[]", "does not map classes to their children"),
        ("-lm", None, "cannot be read"),
    ],
)
def test_a_bad_mapping_file_is_refused(
    option: str, content: str | None, said: str, pairs: Path, tmp_path: Path, probe: Probe
) -> None:
    path = tmp_path / "map.yaml"
    if content is not None:
        path.write_text(content)
    arguments = (pairs / "ms_L0_tensor", pairs / "pt_L0_tensor", "-o", tmp_path / "out", option, path)
    assert probe("compare", *arguments) == 2
    assert said in probe.err and "Traceback" not in probe.err
