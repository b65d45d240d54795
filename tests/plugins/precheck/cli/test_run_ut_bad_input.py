"""Bad input to the pre-check: one sentence what, one how to mend it, exit 2, nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_precheck.checking import find_runner_spec
from support.runs.precheck_runs import (
    STAMP,
    call,
    drawn,
    environment,
    standin_run,
    written,
)
from support.runs.recorded import write_run
from support.standins.precheck_fixtures import Refuses

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager

pytest_plugins = ["support.standins.precheck_fixtures"]

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def dump(tmp_path: Path, standin: Path) -> Path:
    return standin_run(tmp_path / "run", "Functional.good.0", "Functional.near.0")


# -- the run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "is empty"),
        ("{", "not valid JSON"),
        ("not json", "does not hold a JSON object"),
        ("[]", "does not hold a JSON object"),
        ('{"task": "statistics", "framework": "pytorch"}', 'has no "data"'),
        ('{"task": "statistics", "framework": "pytorch", "data": {}}', "contains no calls of APIs"),
        (
            '{"task": "statistics", "framework": "pytorch", "data": {"Torch.add.0.forward": 3}}',
            "must be an object",
        ),
        ('{"task": "structure", "framework": "pytorch", "data": {}}', "task"),
        ('{"task": "statistics", "framework": "caffe", "data": {}}', "was not recorded from"),
        ("\xff\xfe\x00", "does not hold a JSON object"),
    ],
)
def test_damaged_runs(text: str, says: str, refuses: Refuses, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(text.encode("latin-1"))
    assert says in refuses("run_ut", "-api_info", path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_run_that_is_cut_off(share: float, refuses: Refuses, dump: Path) -> None:
    data = dump.read_bytes()
    dump.write_bytes(data[: int(len(data) * share)])
    assert "not valid JSON" in refuses("run_ut", "-api_info", dump)


def test_a_run_of_modules_alone(refuses: Refuses, tmp_path: Path) -> None:
    modules = {
        "Module.fc.Linear.forward.0": call(drawn([3])),
        "Module.fc.Linear.backward.0": call(drawn([3])),
    }
    path = write_run(tmp_path / "run", modules)
    path.write_text(path.read_text().replace('"L1"', '"L0"'))
    said = refuses("run_ut", "-api_info", path)
    assert "level L0" in said and "Record the run with level L1 or mix." in said


def test_what_is_not_there(refuses: Refuses, tmp_path: Path) -> None:
    assert "not found" in refuses("run_ut", "-api_info", tmp_path / "nowhere" / "dump.json")
    (tmp_path / "deep").mkdir()
    assert "contains no dump.json" in refuses("run_ut", "-api_info", tmp_path / "deep")
    one = {"Torch.add.0.forward": call(drawn([3]))}
    ranks = [write_run(tmp_path / "deep" / "step0" / f"rank{i}", one) for i in range(2)]
    assert f"    {ranks[0]}\n    {ranks[1]}\n" in refuses("run_ut", "-api_info", tmp_path / "deep")


def test_a_framework_that_does_not_fit(refuses: Refuses, dump: Path) -> None:
    assert "was not recorded from pytorch" in refuses("-f", "pytorch", "run_ut", "-api_info", dump)
    assert 'No reader for framework "caffe"' in refuses("run_ut", "--framework", "caffe", "-api_info", dump)


def test_a_framework_whose_calls_nothing_runs() -> None:
    with pytest.raises(UserError) as caught:
        find_runner_spec(Manager(), "caffe")
    assert 'Calls of framework "caffe" cannot be run alone' in caught.value.what
    assert {"pytorch", "mindspore"} <= set(caught.value.choices)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, says",
    [
        ("-d x", '"x" is not a device'),
        ("-d -1", '"-1" is not a device'),
        ("-d 0 0", "named twice"),
        ("-d 1 -d 1", "named twice"),
        ("-d cpu 0", "exclude each other"),
        ("-n 0", "0 is not in the range"),
        ("-n 65", "65 is not in the range"),
        ("-n many", "many"),
        ("--timeout 0", "--timeout"),
        ("--timeout -3", "--timeout"),
        ("--timeout soon", "--timeout"),
        ("--lang fr", "--lang"),
        ("--standard 9", "--standard"),
        ("--fail-on skip", "--fail-on"),
        ("--seed half", "--seed"),
        ("--unknown", "--unknown"),
        ("--only Functional.goud.0", "Functional.good.0"),
        ("--only Functional.goud", "Functional.good"),
        ("--only nothing_like_it_at_all", "Give a name such as"),
        ("-config nowhere.json", "cannot be read"),
        ("--assign nowhere.yaml", "cannot be read"),
        ("-csv_path nowhere.csv", "do not modify the result csv name"),
        (f"-csv_path accuracy_checking_result_{STAMP}.csv", "There is no"),
    ],
)
def test_options(line: str, says: str, refuses: Refuses, dump: Path) -> None:
    assert says in refuses("multi_run_ut", "-api_info", dump, *line.split())


def test_a_timeout_that_is_no_number(refuses: Refuses, dump: Path) -> None:
    assert "--timeout" in refuses("run_ut", "-api_info", dump, "--timeout", "nan")


def test_a_run_must_be_given(probe: Any) -> None:
    assert probe("run_ut") == 2
    assert "'-i' / '--input'" in probe.err and "Traceback" not in probe.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has an accelerator")
def test_a_device_that_is_not_there(refuses: Refuses, tmp_path: Path) -> None:
    path = write_run(tmp_path / "torch", {"Torch.add.0.forward": call(drawn([3]), drawn([3]))})
    said = refuses("run_ut", "-api_info", path, "-d", "7")
    assert "no accelerator here for device 7" in said and "Give -d cpu" in said


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("c.json", "", "is empty"),
        ("c.json", "{", "not valid JSON"),
        ("c.json", "[]", "a list where an object was expected"),
        ("c.json", '{"task": "run_ut"}', 'has no section "run_ut"'),
        ("c.json", '{"run_ut": 3}', '"run_ut" must be an object'),
        ("c.json", '{"run_ut": {"white_list": "relu"}}', "white_list must be a list"),
        ("c.json", '{"run_ut": {"white_list": [3]}}', "white_list must be a list"),
        ("c.json", '{"run_ut": {"black_list": ["far", "gud"]}}', "good"),
        ("c.json", '{"run_ut": {"black_list": ["Functional.good.0"]}}', "Names have no prefix"),
        ("c.json", '{"run_ut": {"whitelist": []}}', "Did you mean white_list?"),
        ("c.json", '{"run_ut": {"precision": -1}}', "precision must be a whole number"),
        ("c.json", '{"run_ut": {"precision": 101}}', "precision must be a whole number"),
        ("c.json", '{"run_ut": {"precision": "14"}}', "precision must be a whole number"),
        ("c.json", '{"run_ut": {"precision": true}}', "precision must be a whole number"),
        ("c.json", '{"run_ut": {"error_data_path": 3}}', "error_data_path must be a path"),
        ("c.json", '{"run_ut": {"is_online": true}}', "--input has no effect on calls that a training sends"),
        ("c.json", '{"run_ut": {"is_online": "yes"}}', "is_online must be true or false"),
        ("c.yaml", "white_list: [", "not valid YAML"),
        ("c.yaml", "- relu", "must be a mapping of fields"),
        ("c.yaml", "white_list: {relu: 1}", "white_list must be a list"),
        ("c.yaml", "precision: 1.5", "precision must be a whole number"),
        ("c.yaml", "color: red", 'unknown field "color"'),
        ("c.yaml", "precision: 3\nprecision: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_configurations(name: str, text: str, says: str, refuses: Refuses, dump: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert says in refuses("run_ut", "-api_info", dump, "-config", tmp_path / name)


@pytest.mark.parametrize(
    "text, says",
    [
        ("ulp: [", "not valid YAML"),
        ("[ulp]", "must map standards to APIs"),
        ("upl: [good]", "upl"),
        ("ulp: good", "must be a list"),
        ("ulp: [3]", "which is not an API"),
        ("ulp: [{'9.9': [good]}]", "which is not an API"),
    ],
)
def test_lists_of_standards(text: str, says: str, refuses: Refuses, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "lists.yaml").write_text(text)
    assert says in refuses("run_ut", "-api_info", dump, "--assign", tmp_path / "lists.yaml")


def test_a_configuration_that_is_a_text_of_json(refuses: Refuses, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(json.dumps({"run_ut": {}})[:-1] + "[" * 5000)
    assert "not valid JSON" in refuses("run_ut", "-api_info", dump, "-config", tmp_path / "deep.json")


# -- where the result goes -------------------------------------------------------------------------


def test_a_file_where_the_result_is_to_go(refuses: Refuses, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file" in refuses("run_ut", "-api_info", dump, out=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_that_takes_no_files(refuses: Refuses, dump: Path) -> None:
    assert "cannot be written" in refuses("run_ut", "-api_info", dump, out=Path("/proc/nowhere"))
    assert "is a file" in refuses("run_ut", "-api_info", dump, out=Path("/dev/full/nowhere"))


@pytest.mark.skipif(IS_ROOT, reason="root may write anywhere")
def test_a_directory_without_permission(refuses: Refuses, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o555)
    assert "not writable" in refuses("run_ut", "-api_info", dump, out=tmp_path / "theirs")


def test_a_full_disk_keeps_what_is_finished(tmp_path: Path) -> None:
    """A limit on the size of files stands for it: whole rows stay, and the run goes on from there."""
    path = standin_run(tmp_path / "run", *(f"Functional.good.{i}" for i in range(60)))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "probe_core.cli",
        "run_ut",
        "-api_info",
        path,
        "-o",
        tmp_path / "out",
    ]
    site = environment(tmp_path / "site")
    limit = 6000

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(command, capture_output=True, text=True, env=site, preexec_fn=small)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "cannot be written: File too large." in done.stderr
    found = written(tmp_path / "out")
    assert 0 < len(found.rows) < 60
    assert all(data.endswith(b"\n") and len(data) <= limit for data in found.data), "no half rows"
    assert set(found.rows) == {name.removesuffix(".forward.output.0") for name in found.outputs}

    done = subprocess.run([*command, "-csv_path", found.result], capture_output=True, text=True, env=site)
    assert done.returncode == 0, done.stderr
    assert list(written(tmp_path / "out").rows) == [f"Functional.good.{i}" for i in range(60)]


def test_a_full_disk_from_the_start_leaves_nothing(tmp_path: Path) -> None:
    path = standin_run(tmp_path / "run", "Functional.good.0")
    done = subprocess.run(
        [sys.executable, "-m", "probe_core.cli", "run_ut", "-api_info", path, "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        env=environment(tmp_path / "site"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "cannot be written" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_error_data_that_have_no_place(refuses: Refuses, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "c.json").write_text(json.dumps({"run_ut": {"error_data_path": str(tmp_path / "file")}}))
    said = refuses("run_ut", "-api_info", dump, "-config", tmp_path / "c.json", "-save_error_data")
    assert "is a file" in said and (tmp_path / "file").read_text() == "mine"


def test_error_data_that_cannot_be_written_cost_no_row(
    probe: Any, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measurements stay, whatever becomes of the data; a directory is in their way."""
    monkeypatch.setattr("probe_precheck.cli.run_ut.get_time_stamp", lambda: STAMP)
    (tmp_path / "data" / f"ut_error_data{STAMP}" / "Functional.near.0.py").mkdir(parents=True)
    (tmp_path / "c.json").write_text(json.dumps({"run_ut": {"error_data_path": str(tmp_path / "data")}}))
    command = ("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-config", tmp_path / "c.json")
    assert probe(*command, "-save_error_data") == 0, probe.err
    found = written(tmp_path / "out")
    assert found.rows["Functional.near.0"][0] == "warning"
    assert found.outputs["Functional.near.0.forward.output.0"]["余弦相似度"]
