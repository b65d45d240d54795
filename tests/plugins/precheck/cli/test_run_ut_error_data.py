"""The data of what did not pass with the script beside them, and the standard of a third party."""

from __future__ import annotations

import ast
import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs.precheck_runs import (
    CHINESE,
    RESULT,
    call,
    config,
    drawn,
    standin_run,
    table,
    written,
)
from support.runs.precheck_runs import backward as gradient
from support.runs.recorded import scalar, write_run

from probe_core.cli.main import run

pytest_plugins = ["support.standins.precheck_fixtures"]

HALF = "float16"


def halves() -> dict[str, Any]:
    """Calls whose results in float16 are off by nature: two errors, one of them backward, and a warning."""
    found = {
        "Torch.remainder.0.forward": call(drawn([64], -50.0, 50.0, HALF), scalar(0.1)),
        "Torch.prod.0.forward": call(drawn([40, 64], 0.9, 1.1, HALF), scalar(0)),
        "Functional.layer_norm.0.forward": call(drawn([8, 64], 1000.0, 1001.0, HALF, requires_grad=True), [scalar(64)]),
        "Torch.arcsinh.0.forward": call(drawn([64], -10.0, 10.0, HALF)),
        "Functional.layer_norm.0.backward": gradient([drawn([8, 64], dtype=HALF)], []),
    }
    return found


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the run ``halves``, and what run_ut with -save_error_data makes of it."""
    home = tmp_path_factory.mktemp("failing")
    dump = write_run(home / "run", halves())
    settings = config(home / "config.json", error_data_path=str(home / "data"))
    command = ["run_ut", "-api_info", str(dump), "-o", str(home / "out"), "-save_error_data"]
    assert run([*command, "-config", str(settings)]) == 0
    return home


# -- error data (docs/standards.md#error-data) ------------------------------------------------------------


def test_error_data_have_the_documented_names(failing: Path) -> None:
    found = written(failing / "out")
    assert {name: row[:2] for name, row in found.rows.items()} == {
        "Torch.remainder.0": ["error", ""],
        "Torch.prod.0": ["warning", ""],
        "Functional.layer_norm.0": ["pass", "error"],
        "Torch.arcsinh.0": ["pass", ""],
    }
    (directory,) = (failing / "data").iterdir()
    assert directory.name == f"ut_error_data{found.result.stem[-14:]}"
    parts = ("forward.input.0", "forward.output.bench.0", "forward.output.device.0")
    names = {
        f"{api}.{part}.pt" for api in ("Torch.remainder.0", "Torch.prod.0", "Functional.layer_norm.0") for part in parts
    }
    back = ("input.0", "output.bench.0", "output.device.0")
    names |= {f"Functional.layer_norm.0.backward.{part}.pt" for part in back}
    scripts = {"Torch.remainder.0.py", "Torch.prod.0.py", "Functional.layer_norm.0.py"}
    assert {path.name for path in directory.iterdir()} == names | scripts, "nothing of what passed"


def test_error_data_are_those_that_the_row_is_about(failing: Path) -> None:
    (directory,) = (failing / "data").iterdir()
    load = {
        part: torch.load(directory / f"Torch.remainder.0.forward.{part}.0.pt", weights_only=True)
        for part in ("input", "output.bench", "output.device")
    }
    assert [tensor.dtype for tensor in load.values()] == [torch.float16, torch.float32, torch.float16]
    assert load["input"].min() == -50 and load["input"].max() == 50, "the recorded extremes"
    assert torch.equal(load["output.device"], torch.remainder(load["input"], 0.1))
    assert torch.equal(load["output.bench"], torch.remainder(load["input"].float(), 0.1))
    device, bench = (load[part].double().numpy() for part in ("output.device", "output.bench"))
    cosine = device @ bench / np.sqrt((device @ device) * (bench @ bench))
    row = written(failing / "out").outputs["Torch.remainder.0.forward.output.0"]
    assert float(row["余弦相似度"]) == pytest.approx(cosine, abs=1e-12)


@pytest.mark.parametrize("api", ["Torch.remainder.0.forward", "Functional.layer_norm.0.backward"])
def test_the_script_runs_with_torch_alone_and_shows_the_same(api: str, failing: Path, tmp_path: Path) -> None:
    (directory,) = (failing / "data").iterdir()
    script = directory / f"{api.rpartition('.')[0]}.py"
    imported = {
        alias.name
        for node in ast.walk(ast.parse(script.read_text("utf-8")))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= {"torch", "sys", "contextlib"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT_ALONE, script], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{api.rpartition('.')[2]}.output.0")]
    row = written(failing / "out").outputs[f"{api}.output.0"]
    shown = dict(re.findall(r"(cosine|max abs error) +(\S+)", line))
    assert float(shown["cosine"]) == pytest.approx(float(row["余弦相似度"]), abs=1e-8)
    sides = [
        torch.load(directory / f"{api}.output.{side}.0.pt", weights_only=True).double() for side in ("device", "bench")
    ]
    assert float(shown["max abs error"]) == pytest.approx(float((sides[0] - sides[1]).abs().max()), rel=1e-3)


SCRIPT_ALONE = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0].startswith("probe_"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


# -- a third party's standard ----------------------------------------------------------------------


def test_a_third_partys_standard_fills_its_column_and_judges_by_it(failing: Path, probe: Any, tmp_path: Path) -> None:
    found = written(failing / "out")
    assert found.headers == (RESULT, [*CHINESE, "符号错误占比"])
    shares = {name: row["符号错误占比"] for name, row in found.outputs.items()}
    name = "Torch.arcsinh.0.forward.output.0"
    assert shares.pop(name) == f"{0:.14f}" and set(shares.values()) == {""}

    sides = {}
    for side, share in (("npu", "0.25"), ("gpu", "0.125")):
        head, *rows = table(found.details)
        place = head.index("符号错误占比")
        rows = [[*row[:place], share] if row[0] == name else row for row in rows]
        sides[side] = tmp_path / f"{side}.csv"
        with sides[side].open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([head, *rows])
    for npu, gpu, status in (("npu", "gpu", "error"), ("gpu", "npu", "pass")):
        out = tmp_path / status
        command = ("api_precision_compare", "-npu", sides[npu], "-gpu", sides[gpu], "-o", out, "--lang", "zh")
        assert probe(*command) == 0, probe.err
        judged = written(out)
        assert judged.rows["Torch.arcsinh.0"][0] == status
        assert judged.outputs[name]["比对算法"] == "符号比对法"
        said = "ERROR: 符号错误 0.25, 0.125" if status == "error" else ""
        assert judged.rows["Torch.arcsinh.0"][2] == said


def test_assigning_an_api_to_the_third_partys_standard(probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.good.0", "Functional.far.0")
    lists = tmp_path / "lists.yaml"
    lists.write_text("same_signs: [far]\n")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "--assign", lists) == 0, probe.err
    outputs = written(tmp_path / "out").outputs
    assert outputs["Functional.far.0.forward.output.0"]["符号错误占比"] == f"{0:.14f}"
    assert outputs["Functional.good.0.forward.output.0"]["符号错误占比"] == ""
    assert outputs["Functional.good.0.forward.output.0"]["均方根误差"] != ""


def test_a_third_partys_list_needs_its_plugin(
    probe: Any, tmp_path: Path, standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_PLUGINS", "metrics,precheck,standin")
    dump = standin_run(tmp_path / "run", "Functional.good.0")
    lists = tmp_path / "lists.yaml"
    lists.write_text("same_signs: [good]\n")
    command = ("run_ut", "-api_info", dump, "-o", tmp_path / "out")
    assert probe(*command, "--assign", lists) == 2
    assert 'names a standard "same_signs" that is not installed' in probe.err and "    ulp\n" in probe.err
    assert probe(*command) == 0, probe.err
    assert written(tmp_path / "out").headers == (RESULT, CHINESE)
