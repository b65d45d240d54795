"""The scripts of the page on older tools, and its table of old and new calls, run as they stand."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs.preloaded import run
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "legacy.md"
STEP = "import torch\nmodel = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU())\n"
TRAIN = "\nmodel(torch.randn(1, 1, 5, 5)).sum().backward()\n"


def pairs() -> list[tuple[str, str]]:
    """The old and the new call of each row of the table."""
    table = PAGE.read_text("utf-8").partition("| old call | new call |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.fullmatch(r"\| `(.*?)`.* \| `(.*)` \|", line) for line in table.splitlines()]
    assert all(rows)
    return [(row[1], row[2]) for row in rows if row]


def ran(code: str, directory: Path) -> None:
    file = directory / "script.py"
    file.write_text(code)
    done = run([sys.executable, str(file)], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()


def test_the_scripts_write_what_their_page_says(tmp_path: Path) -> None:
    ptdbg, hooks = blocks(PAGE, "python")
    ran("import torch\n" + ptdbg, tmp_path)
    directory = tmp_path / "npu/ptdbg_dump_v2.3/rank0"
    assert (directory / "dump.pkl").is_file()
    assert (directory / "dump/Functional_conv2d_0_forward_output.npy").is_file()
    ran("import torch\n" + hooks, tmp_path)
    assert (tmp_path / "result.csv").read_text().startswith("Name,NPU Tensor Dtype")


def settings() -> list[tuple[str, str]]:
    return [pair for pair in pairs() if pair[1].startswith("{")]


@pytest.mark.parametrize(("old", "new"), settings())
def test_old_and_new_settings_record(tmp_path: Path, old: str, new: str) -> None:
    """Both leave records; those that select one call, of that call."""
    module = "hooks" if "acc_cmp_hook" in old else "ptdbg"
    code = f"from probe_legacy.{module} import *\n{STEP}"
    if "set_dump_switch" in old:
        code += 'set_dump_path("npu.pkl"); register_hook(model, acc_cmp_dump)\n'
    is_check = "overflow_check" in old
    code += ("with torch.no_grad(): model[0].bias[0] = float('nan')\n" if is_check else "") + old
    code += f"\ntry:{TRAIN.replace(chr(10), chr(10) + '    ').rstrip()}\nexcept ValueError: pass\n"
    ran(code, tmp_path)
    (first, *_) = sorted(tmp_path.rglob("*.pkl"))
    assert first.read_text()
    (tmp_path / "config.json").write_text(json.dumps({"dump_path": str(tmp_path / "new"), **json.loads(new)}))
    ran(
        f"from probe_pytorch import PrecisionDebugger\n{STEP}"
        + ("with torch.no_grad(): model[0].bias[0] = float('nan')\n" if is_check else "")
        + 'with PrecisionDebugger("config.json", model=model):'
        + TRAIN.replace("\n", "\n    "),
        tmp_path,
    )
    keys = json.loads((tmp_path / "new/step0/rank/dump.json").read_text())["data"]
    assert keys
    for name in re.findall(r'"(Functional\.\w+\.0\.forward)"', new):
        assert name in keys


def test_old_and_new_calls_record_and_their_commands_compare(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [pair for pair in pairs() if not pair[1].startswith(("{", "probe "))]
    seed, where, on, off = plain
    old = [seed[0], where[0], on[0]], off[0]
    new = [seed[1], where[1], on[1]], off[1]
    ran("from probe_legacy.ptdbg import *\n" + STEP + "\n".join(old[0]) + TRAIN + old[1], tmp_path)
    ran(STEP + "\n".join(new[0]) + TRAIN + new[1], tmp_path)
    assert (tmp_path / "npu/step0/rank/dump.json").is_file()
    dump = tmp_path / "ptdbg_dump_v2.3/rank0/npu"
    hooks = 'from probe_legacy.hooks import *\nregister_acc_cmp_hook(model, "cpu.pkl")'
    for number, (_, command) in enumerate(pair for pair in pairs() if pair[1].startswith("probe ")):
        place = tmp_path / f"command{number}"
        place.mkdir()
        monkeypatch.chdir(place)
        if "--as hooks" in command:
            ran(STEP + hooks + TRAIN, place)
            (place / "npu.pkl").write_bytes((place / "cpu.pkl").read_bytes())
        elif "npu gpu" in command:
            for side in ("npu", "gpu"):
                (place / side).symlink_to(dump.parent.parent)
        else:
            for side in ("npu", "bench"):
                (place / f"{side}.pkl").symlink_to(dump.with_suffix(".pkl"))
                (place / side).symlink_to(dump)
        assert probe(*shlex.split(command)[1:]) == 0, (command, probe.err)
        if "--as" in command:
            assert list((place / "out").rglob("compare_result_*.csv"))
        else:
            assert "Torch_relu_0_forward_input.0" in probe.out
