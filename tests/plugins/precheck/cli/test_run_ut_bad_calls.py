"""Calls that cannot be run: a row that says why, and no other API harmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.precheck_runs import (
    Written,
    call,
    drawn,
    standin_run,
    written,
)
from support.runs.precheck_runs import backward as gradient
from support.runs.recorded import scalar, write_run
from support.standins.precheck_fixtures import Refuses

from probe_core.cli.main import run

pytest_plugins = ["support.standins.precheck_fixtures"]


@pytest.fixture
def dump(tmp_path: Path, standin: Path) -> Path:
    return standin_run(tmp_path / "run", "Functional.good.0", "Functional.near.0")


# -- calls that cannot be run ----------------------------------------------------------------------


def bad_calls(directory: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Calls, and what the row of each is to say; the data of some lie in ``directory``."""
    directory.mkdir(parents=True)
    names = {name: f"Torch.exp.{name}.pt" for name in ("shape", "dtype", "cut", "text", "object")}
    torch.save(torch.zeros(5), directory / names["shape"])
    torch.save(torch.zeros(3, dtype=torch.int32), directory / names["dtype"])
    torch.save(torch.zeros(3), directory / names["cut"])
    (directory / names["cut"]).write_bytes((directory / names["cut"]).read_bytes()[:300])
    (directory / names["text"]).write_text("no tensor")
    torch.save({"weights": [1, 2]}, directory / names["object"])
    files = {
        "shape": "shape [5] where [3] was recorded",
        "dtype": "torch.int32 where torch.float32 was recorded",
        "cut": names["cut"],
        "text": names["text"],
        "object": names["object"],
        "gone": "Torch.exp.gone.pt",
    }
    calls = [(call(drawn([3], data_name=f"Torch.exp.{name}.pt")), says) for name, says in files.items()]
    odd = drawn([3])
    calls += [
        (call(drawn([1 << 20, 1 << 20])), "needs more memory than is available"),
        (call(drawn([1 << 40] * 4)), "needs more memory than is available"),
        (call(drawn([3], dtype="float9")), "has no dtype torch.float9"),
        (call(drawn([3], dtype="complex64")), "complex64 is not supported for random inputs"),
        (call({**odd, "Max": None}), "were not recorded"),
        (call({key: value for key, value in odd.items() if key not in ("Max", "Min")}), "were not recorded"),
        (call({"type": "torch.ProcessGroup", "group_ranks": [0]}), "cannot be rebuilt"),
        (call({"type": "torch.dtype", "value": "torch.float9"}), "has no torch.float9"),
        (call(), "exp()"),
        (call(drawn([3]), nonsense=scalar(1)), "exp()"),
        (call([odd, [odd]]), "exp()"),
        (call(drawn([3], high=float("inf"), dtype="int64")), "is not finite"),
    ]
    data = {f"Torch.exp.{i}.forward": record for i, (record, _) in enumerate(calls)}
    says = {f"Torch.exp.{i}": text for i, (_, text) in enumerate(calls)}
    index = drawn([3], dtype="int64", low=0)
    others = {
        "Torch.matmul.0": (call(drawn([3, 4]), drawn([5, 6])), "mat1 and mat2"),
        "Torch.no_such_api.0": (call(drawn([3])), "is not there in torch"),
        "Torch.linalg.no_such.0": (call(drawn([3])), "is not there in torch"),
        "Torch.float32.0": (call(drawn([3])), "is not there in torch"),
        "Nothing.exp.0": (call(drawn([3])), "Nothing"),
        "VF.no_such.0": (call(drawn([3])), "VF.no_such"),
        "NPU.npu_no_such.0": (call(drawn([3])), "There is not bench function npu_no_such"),
        "Distributed.all_reduce.0": (call(drawn([3])), "not supported for run ut"),
        "Torch.exp": (call(drawn([3])), "API Torch.exp not support for run ut. SKIP."),
        "Torch.exp.zero": (call(drawn([3])), "API Torch.exp.zero not support for run ut. SKIP."),
        "Torch.a.b.c.0": (call(drawn([3])), "API Torch.a.b.c.0 not support for run ut. SKIP."),
        "Torch.to.0": (call(drawn([3])), "black list"),
        "Torch.full.0": (call([scalar(1 << 43)], scalar(1.0)), "one call may use"),
        "Torch.cdist.0": (call(drawn([1 << 22, 1]), drawn([1 << 22, 1])), "one call may use"),
        "Torch.as_strided.0": (call(drawn([4]), [scalar(1 << 43)], [scalar(0)]), "one call may use"),
        "Torch.bincount.0": (call(index, minlength=scalar(1 << 43)), "There is not enough memory to run it."),
    }
    for name, (record, text) in others.items():
        data[f"{name}.forward"], says[name] = record, text
    return data, says


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Written, dict[str, str]]:
    """Run run_ut on ``bad_calls`` with two good ones among them; the results and the expected texts."""
    home = tmp_path_factory.mktemp("skipped")
    data, says = bad_calls(home / "run" / "dump_tensor_data")
    good = call(drawn([3], requires_grad=True))
    lone = {"Torch.log.0.backward": gradient([drawn([3])], [drawn([3])])}
    path = write_run(home / "run", {"Torch.sin.0.forward": good, **data, "Torch.sin.1.forward": good, **lone})
    assert run(["run_ut", "-api_info", str(path), "-o", str(home / "out"), "-d", "cpu", "--lang", "en"]) == 0
    return written(home / "out"), {**says, "Torch.log.0": "a backward record and no forward record"}


def test_no_api_vanishes_and_what_is_good_is_unharmed(skipped: tuple[Written, dict[str, str]]) -> None:
    found, says = skipped
    assert set(found.rows) == {"Torch.sin.0", "Torch.sin.1", *says}
    assert found.rows["Torch.sin.0"] == found.rows["Torch.sin.1"] == ["pass", "", ""]


def test_skipped_rows_say_why(skipped: tuple[Written, dict[str, str]]) -> None:
    found, says = skipped
    rows = {name: found.rows[name] for name in says}
    assert {name for name, row in rows.items() if row[0] != "SKIP"} == set()
    assert {name: row[2] for name, row in rows.items() if says[name] not in row[2]} == {}
    for name, row in rows.items():
        assert row[2].isprintable() and len(row[2]) < 1100
        assert found.outputs[f"{name}.forward.output.0"]["Message"] == row[2]


def test_a_backward_that_does_not_fit_is_skipped_and_says_why(probe: Any, tmp_path: Path) -> None:
    one = call(drawn([3], requires_grad=True))
    records = {"Torch.sin.0": [], "Torch.sin.1": [None], "Torch.sin.2": [drawn([3], dtype="float9")]}
    data: dict[str, Any] = {}
    for name, given in records.items():
        data[f"{name}.forward"], data[f"{name}.backward"] = one, gradient(given, [])
    path = write_run(tmp_path / "run", data)
    assert probe("run_ut", "-api_info", path, "-o", tmp_path / "out", "-d", "cpu") == 0, probe.err
    rows = written(tmp_path / "out").rows
    assert [row[1] for row in rows.values()] == ["SKIP"] * 3
    assert all(row[2] for row in rows.values())
    assert "skip backward" in rows["Torch.sin.0"][2]


@pytest.mark.parametrize("name", ["../secret.pt", "/etc/passwd", "a/../../secret.pt", "..\\secret.pt"])
def test_a_file_name_that_leads_out_of_the_run(name: str, refuses: Refuses, tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "secret.pt")
    path = write_run(tmp_path / "run", {"Torch.exp.0.forward": call(drawn([3], data_name=name))}, task="tensor")
    assert "inside the run directory" in refuses("run_ut", "-api_info", path)


def test_the_oldest_recorders_paths_lead_nowhere_else(probe: Any, tmp_path: Path) -> None:
    """Their ``datapath`` names a file of the run by its last part, whatever stands before."""
    (tmp_path / "run" / "dump_tensor_data").mkdir(parents=True)
    torch.save(torch.zeros(3), tmp_path / "secret.pt")
    leaf = drawn([3], datapath=f"{tmp_path}/run/dump_tensor_data/../../secret.pt")
    path = write_run(tmp_path / "run", {"Torch.exp.0.forward": call(leaf)}, task="tensor")
    assert probe("run_ut", "-api_info", path, "-o", tmp_path / "out", "-d", "cpu") == 0, probe.err
    (row,) = written(tmp_path / "out").rows.values()
    assert row[0] == "SKIP" and "secret.pt" in row[2]


def test_an_api_that_stands_there_twice(refuses: Refuses, dump: Path) -> None:
    dump.write_text(dump.read_text().replace("Functional.near.0", "Functional.good.0"))
    assert "appears twice" in refuses("run_ut", "-api_info", dump)
