"""``probe run_ut`` and ``multi_run_ut``: what the command line takes, and what stands in both files."""

from __future__ import annotations

import importlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_precheck.rules import Rules
from support.runs.precheck_runs import (
    CHINESE,
    ENGLISH,
    RESULT,
    Written,
    call,
    config,
    drawn,
    some_calls,
    standin_run,
    table,
    written,
)
from support.runs.recorded import write_run
from support.standins.standin_precheck import TRACE

from probe_core.cli.main import run

pytest_plugins = ["support.standins.precheck_fixtures"]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Run run_ut on ``some_calls``."""
    home = tmp_path_factory.mktemp("checked")
    dump = write_run(home / "run", some_calls())
    assert run(["run_ut", "-api_info", str(dump), "-o", str(home / "out"), "-d", "cpu"]) == 0
    return written(home / "out")


# -- the files (docs/standards.md#csv) ---------------------------------------------------------------


def test_names_marks_and_modes_of_both_files(checked: Written) -> None:
    stamp = checked.result.name.removeprefix("accuracy_checking_result_").removesuffix(".csv")
    assert re.fullmatch(r"20\d{12}", stamp)
    assert checked.details.name == f"accuracy_checking_details_{stamp}.csv"
    for path in (checked.result, checked.details):
        assert path.stat().st_mode & 0o777 == 0o640
        data = path.read_bytes()
        assert data.startswith(b"\xef\xbb\xbfAPI") and data.count(b"\xef\xbb\xbf") == 1
        assert data.endswith(b"\n")


def test_columns_stand_in_order(checked: Written) -> None:
    assert checked.headers == (RESULT, CHINESE)


def test_every_row_has_all_its_fields_and_blanks_are_one_blank(checked: Written) -> None:
    for path, width in ((checked.result, 4), (checked.details, len(CHINESE))):
        rows = table(path)
        assert {len(row) for row in rows} == {width}
        assert not any(cell == "" or (cell != " " and cell.strip() != cell) for row in rows for cell in row)


def test_every_recorded_api_has_its_row_in_the_order_of_the_run(checked: Written) -> None:
    names = list(checked.rows)
    assert names == [name.removesuffix(".forward") for name in some_calls() if name.endswith(".forward")]
    passed = {name: ["pass", "", ""] for name in names}
    passed["Functional.relu.0"] = passed["Torch.matmul.0"] = ["pass", "pass", ""]
    for name in ("Torch.nosuch.0", "Distributed.all_reduce.0", "Torch.a.b.c.0"):
        passed[name] = ["SKIP", "", checked.rows[name][2]]
    assert checked.rows == passed
    assert "Torch.nosuch is not there in torch" in checked.rows["Torch.nosuch.0"][2]
    assert "Distributed APIs are not supported" in checked.rows["Distributed.all_reduce.0"][2]
    assert checked.rows["Torch.a.b.c.0"][2] == "API Torch.a.b.c.0 not support for run ut. SKIP."


def test_every_output_has_its_row_dtypes_and_shape(checked: Written) -> None:
    found = {
        name: (row["Bench Dtype"], row["DEVICE Dtype"], row["Shape"])
        for name, row in checked.outputs.items()
        if row["Status"] != "SKIP"
    }
    double, single = "torch.float64", "torch.float32"
    assert found == {
        "Functional.relu.0.forward.output.0": (double, single, "(4, 8)"),
        "Functional.relu.0.backward.output.0": (double, single, "(4, 8)"),
        "Torch.matmul.0.forward.output.0": (double, single, "(8, 4)"),
        "Torch.matmul.0.backward.output.0": (double, single, "(8, 16)"),
        "Torch.add.0.forward.output.0": (double, single, "(6,)"),
        "Tensor.sum.0.forward.output.0": (single, "torch.bfloat16", "()"),
        "Torch.argmax.0.forward.output.0": ("torch.int64", "torch.int64", "()"),
        "Functional.conv2d.0.forward.output.0": (single, single, "(1, 3, 4, 4)"),
        "Torch.linalg.inv.0.forward.output.0": (double, single, "(3, 3)"),
        **{f"Torch.split.0.forward.output.{i}": (double, single, "(2,)") for i in range(3)},
    }


def test_a_positional_tensor_without_gradient_is_skipped_and_says_so(checked: Written) -> None:
    """The weight of this matmul needs no gradient."""
    row = checked.outputs["Torch.matmul.0.backward.output.1"]
    assert (row["Status"], row["Message"]) == ("SKIP", "Bench output is None, skip this test.")
    assert checked.rows["Torch.matmul.0"][1] == "pass"


@pytest.mark.parametrize(
    "output, columns",
    [
        ("Functional.relu.0.forward.output.0", ["二进制一致错误率"]),
        ("Torch.add.0.forward.output.0", ["inf/nan错误率", "相对误差错误率", "绝对误差错误率"]),
        ("Torch.matmul.0.forward.output.0", ["ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比"]),
        ("Functional.conv2d.0.forward.output.0", ["双千指标"]),
        ("Torch.linalg.inv.0.forward.output.0",
         ["误差均衡性", "均方根误差", "小值域错误占比", "相对误差最大值", "相对误差平均值"]),
    ],
)  # fmt: skip
def test_each_standard_fills_its_columns_and_no_others(output: str, columns: list[str], checked: Written) -> None:
    row = checked.outputs[output]
    assert [name for name in CHINESE[4:21] if row[name]] == ["余弦相似度", "最大绝对误差", *columns]


def test_numbers_are_those_of_the_recorded_tensors_to_the_last_digit(probe: Any, tmp_path: Path) -> None:
    """A matmul of recorded tensors, measured here in float64 from the formulas of the guide (9.7, A6)."""
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(16, 40, generator=generator), torch.randn(40, 9, generator=generator)
    files = tmp_path / "run" / "dump_tensor_data"
    files.mkdir(parents=True)
    leaves = []
    for i, value in enumerate((x, y)):
        torch.save(value, files / f"Torch.matmul.0.forward.input.{i}.pt")
        leaves.append(drawn(list(value.shape), data_name=f"Torch.matmul.0.forward.input.{i}.pt"))
    dump = write_run(tmp_path / "run", {"Torch.matmul.0.forward": call(*leaves)}, task="tensor")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-d", "cpu") == 0, probe.err

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    device = (x @ y).double().numpy()
    torch.set_num_threads(threads)
    bench = (x.double() @ y.double()).numpy()
    exponent = np.maximum(np.frexp(np.abs(bench))[1] - 1, -126)
    ulp = np.abs((device - bench) * 2.0 ** (23 - exponent))
    row = written(tmp_path / "out").outputs["Torch.matmul.0.forward.output.0"]
    expected = {
        "最大绝对误差": np.abs(device - bench).max(),
        "ULP误差最大值": ulp.max(),
        "ULP误差平均值": ulp.mean(),
        "ULP误差大于阈值占比": float((ulp > 32).mean()),
    }
    assert {name: float(row[name]) for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert row["最大绝对误差"] == f"{expected['最大绝对误差']:.14e}", "a small number has an exponent"
    assert row["ULP误差最大值"] == f"{ulp.max():.14f}"


def test_english_headers_and_messages(probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.far.0", "Functional.good.0")
    lists = tmp_path / "lists.yaml"
    lists.write_text("same_signs: [far]\n")
    command = ("run_ut", "-api_info", dump, "-o", tmp_path / "out", "--assign", lists)
    assert probe(*command, "--lang", "en") == 0, probe.err
    found = written(tmp_path / "out")
    assert found.headers == (RESULT, [*ENGLISH, "Sign Flip Share"])
    assert found.result.read_text("utf-8-sig").isascii() and found.details.read_text("utf-8-sig").isascii()


@pytest.mark.parametrize("digits", [0, 3, 20])
def test_precision_says_how_many_digits_numbers_have(digits: int, probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.far.0")
    settings = config(tmp_path / "config.json", precision=digits)
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-config", settings) == 0, probe.err
    (row,) = written(tmp_path / "out").outputs.values()
    numbers = [row[name] for name in CHINESE[4:21] if row[name]]
    assert len(numbers) >= 7
    tail = rf"\.\d{{{digits}}}" if digits else ""
    assert all(re.fullmatch(rf"\d+{tail}(e-\d\d)?", number) for number in numbers), numbers


def test_text_from_strangers_is_no_formula_and_stays_one_cell(probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.cell.0", "Functional.refuse.1")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out") == 0, probe.err
    rows = written(tmp_path / "out").rows
    assert rows["Functional.cell.0"][2].startswith("'=HYPERLINK(") and '"quoted"' in rows["Functional.cell.0"][2]
    assert rows["Functional.refuse.1"] == ["SKIP", "", "the kernel takes no such shape"]


# -- an installation that lacks something ----------------------------------------------------------


def test_calls_all_skipped_because_probe_lacks_something_are_a_defect(
    probe: Any, tmp_path: Path, standin: Path
) -> None:
    dump = standin_run(tmp_path / "run", "Functional.broken.0", "Functional.refuse.0")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out") == 70
    assert "No call was run" in probe.err and "No module named 'standin_part'" in probe.err
    assert set(written(tmp_path / "out").rows) == {"Functional.broken.0", "Functional.refuse.0"}


@pytest.mark.parametrize("beside", ["Functional.good.0", ""])
def test_a_call_skipped_is_no_defect_where_others_ran_or_the_call_is_at_fault(
    beside: str, probe: Any, tmp_path: Path, standin: Path
) -> None:
    names = ("Functional.broken.0", beside) if beside else ("Functional.refuse.0",)
    dump = standin_run(tmp_path / "run", *names)
    probe("run_ut", "-api_info", dump, "-o", tmp_path / "out")
    assert probe.code != 70 and "No call was run" not in probe.err


@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
@pytest.mark.parametrize("missing", ["rules.yaml", "script.txt"])
def test_a_missing_file_of_a_runner_is_a_defect_at_the_start(
    framework: str, missing: str, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = importlib.import_module(f"probe_{framework}.precheck.runner")
    monkeypatch.setattr(runner, "rules", Rules(runner.__package__))
    monkeypatch.setattr("probe_precheck.rules.files", lambda _: Without(files(runner.__package__), missing))
    dump = write_run(tmp_path / "run", some_calls())
    dump.write_text(dump.read_text().replace('"framework": "pytorch"', f'"framework": "{framework}"'))
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-d", "cpu") == 70
    assert f"probe_{framework}.precheck lacks its file {missing}" in probe.err
    assert not list(tmp_path.glob("out/*.csv"))


class Without:
    """A package's directory without one of its files."""

    def __init__(self, directory: Any, missing: str) -> None:
        self._directory, self._missing = directory, missing

    def joinpath(self, name: str) -> Any:
        return self._directory.joinpath("not there" if name == self._missing else name)


# -- spellings and options -------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "run_ut -api_info DUMP -o OUT",
        "run_ut --api_info_file DUMP --out_path OUT",
        "-f standin run_ut -api_info DUMP -o OUT",
        "--framework standin run_ut -api_info DUMP -o OUT",
        "run_ut --framework standin -api_info DUMP -o OUT -d cpu",
        "run_ut -api_info DUMP -o OUT --device cpu -f -j",
        "run_ut -d CPU -api_info DUMP -o OUT --filter_api --jit_compile",
        "acc_check -api_info DIRECTORY -o OUT -save_error_data -config CONFIG",
        "acc_check -api_info DUMP -o OUT --save_error_data --config_path CONFIG",
        "multi_run_ut -api_info DUMP -n 2 -o OUT",
        "multi_run_ut -n 32 -d 0 1 2 3 -api_info DUMP -o OUT",
        "multi_acc_check -api_info DUMP --num_splits 1 -d 0 -o OUT",
        "run_ut -api_info DUMP -d 0 1 -o OUT --timeout 5 --standard 8.3 --seed 3 --lang zh",
    ],
)
def test_every_spelling(line: str, probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.good.0", "Tensor.good.0")
    settings = config(tmp_path / "config.json", error_data_path=str(tmp_path / "data"))
    places = {"DUMP": dump, "DIRECTORY": dump.parent, "OUT": tmp_path / "out", "CONFIG": settings}
    assert probe(*(places.get(word, word) for word in line.split())) == 0, probe.err
    assert probe.err == "" and "  0 error, 0 warning, 2 pass, 0 SKIP\n" in probe.out
    assert list(written(tmp_path / "out").rows) == ["Functional.good.0", "Tensor.good.0"]


def test_the_result_directory_is_the_working_one_where_none_is_given(
    probe: Any, tmp_path: Path, standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = standin_run(tmp_path / "run", "Functional.good.0")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert probe("run_ut", "-api_info", dump) == 0, probe.err
    assert list(written(tmp_path / "here").rows) == ["Functional.good.0"]


def test_more_processes_than_eight_a_device_are_too_many(
    probe: Any, tmp_path: Path, standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRACE, str(tmp_path / "trace"))
    dump = standin_run(tmp_path / "run", *(f"Functional.slower.{i}" for i in range(12)))
    command = ("multi_run_ut", "-api_info", dump, "-o", tmp_path / "out")
    assert probe(*command, "-n", "12") == 0
    assert probe.err == "warning: 12 processes are more than 8 per device; 8 are used.\n"
    lines = (tmp_path / "trace").read_text().splitlines()
    assert len(lines) == 12 and len({line.split()[0] for line in lines}) <= 8
    only = ("--only", "Functional.slower.0")
    assert probe(*command, *only, "-n", "16", "-d", "0", "1") == 0
    assert probe.err == ""
    assert probe(*command, *only, "-n", "17", "-d", "0", "1") == 0
    assert "16 are used" in probe.err


def test_no_more_processes_start_than_there_are_calls(
    probe: Any, tmp_path: Path, standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process takes the next call when it is free."""
    monkeypatch.setenv(TRACE, str(tmp_path / "trace"))
    names = [f"Functional.slower.{i}" for i in range(3)]
    dump = standin_run(tmp_path / "run", *names)
    assert probe("multi_run_ut", "-api_info", dump, "-o", tmp_path / "out", "-n", "8") == 0, probe.err
    lines = [line.split() for line in (tmp_path / "trace").read_text().splitlines()]
    assert sorted(name for _, name in lines) == names, "each call is run once"
    assert 1 <= len({process for process, _ in lines}) <= 3


def test_as_many_processes_as_one_likes_write_the_same_bytes(checked: Written, probe: Any, tmp_path: Path) -> None:
    dump = write_run(tmp_path / "run", some_calls())
    assert probe("multi_run_ut", "-n", "2", "-api_info", dump, "-o", tmp_path / "out", "-d", "cpu") == 0
    assert written(tmp_path / "out").data == checked.data


def test_a_seed_makes_the_random_inputs(checked: Written, probe: Any, tmp_path: Path) -> None:
    dump = write_run(tmp_path / "run", some_calls())
    command = ("run_ut", "-api_info", dump, "-d", "cpu")
    assert probe(*command, "--seed", "7", "-o", tmp_path / "seven") == 0
    assert probe(*command, "--seed", "7", "-o", tmp_path / "again", "--only", "Torch.matmul") == 0
    seven, again = written(tmp_path / "seven"), written(tmp_path / "again")
    name = "Torch.matmul.0.forward.output.0"
    assert seven.outputs[name] == again.outputs[name], "whatever ran before a call does not matter"
    assert seven.outputs[name]["ULP误差最大值"] != checked.outputs[name]["ULP误差最大值"]


def test_two_inputs_of_one_shape_are_not_alike(probe: Any, tmp_path: Path) -> None:
    """Of two that are alike the difference is zero, and zero has no cosine."""
    calls = {f"Torch.{api}.forward": call(drawn([50]), drawn([50])) for api in ("sub.0", "matmul.0", "matmul.1")}
    dump = write_run(tmp_path / "run", calls)
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-d", "cpu") == 0
    difference, *products = written(tmp_path / "out").outputs.values()
    assert float(difference["余弦相似度"]) > 0.9
    assert products[0] != products[1], "two calls of one API draw their own numbers"
