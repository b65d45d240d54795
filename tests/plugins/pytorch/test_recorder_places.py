"""Places of a recording: those that cannot be written, and the contents of the others."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from support.programs.training import raw
from support.runs import recorder_files
from support.runs.recorder_files import (
    FILES,
    alone,  # noqa: F401
    net,
    read,
    start_python,
    train,
)
from support.runs.recording import Recording, recording
from torch import Tensor
from torch.nn import functional as F

from probe_core.errors import UserError

STORES = ("packed", "files")
pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
# -- places where nothing can be written -----------------------------------------------------------


@pytest.mark.parametrize("inside", [".", "deeper/still"])
def test_a_file_in_the_way_of_the_directory(tmp_path: Path, inside: str) -> None:
    (tmp_path / "run").write_text("mine")
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(dump_path=tmp_path / "run" / inside, level="mix")
    model = net()
    for number in range(2):
        if number == 0:
            with pytest.raises(UserError, match=r"is a file|cannot be written"):
                debugger.start(model)
        else:  # the script went on all the same: the training has begun, and nothing stops it
            debugger.start(model)
        assert torch._C._len_torch_function_stack() == 0
        assert not model[0]._forward_hooks
        train(model)
        debugger.stop()
        debugger.step()
    assert (tmp_path / "run").read_text() == "mine"


def test_the_message_speaks_of_dump_path(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(dump_path=tmp_path / "run", level="L1")
    with pytest.raises(UserError) as caught:
        debugger.start()
    assert "dump_path" in str(caught.value) and " -o" not in str(caught.value)


NOBODY = """
    import os, sys
    import torch
    from probe_core.errors import UserError
    from probe_pytorch import PrecisionDebugger
    import probe_pytorch.capture.names, probe_pytorch.recorder

    probe_pytorch.capture.names.load_names()  # what is read lazily may lie where nobody may look
    if os.geteuid() == 0:
        os.setuid(65534)
    debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1")
    try:
        debugger.start()
    except UserError as error:
        print(error.what)
    print((torch.ones(2) + 1).tolist(), torch._C._len_torch_function_stack())
    debugger.stop()
    debugger.step()
"""


def test_a_directory_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir(mode=0o500)
    with start_python(NOBODY, path) as process:
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    told, result = out.splitlines()
    assert re.search("cannot be written|not writable", told) and str(path) in told
    assert result == "[2.0, 2.0] 0"
    assert list(path.iterdir()) == []


FULL = """
    import io, json, os, resource, signal, sys
    import torch
    from probe_core.errors import UserError
    from probe_pytorch import PrecisionDebugger
    from torch import nn

    root, records = sys.argv[1], []
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    torch.set_num_threads(1)

    def run(limit, store, task):
        path = f"{root}/{limit}-{store}-{task}"
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        PrecisionDebugger._instance = None
        with open(path + ".json", "w") as file:
            json.dump({"dump_path": path, "store": store, "task": task, "level": "mix"}, file)
        debugger = PrecisionDebugger(path + ".json")
        raised, losses = [], []
        told = sys.stderr = io.StringIO()
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit or resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for step in range(3):
            debugger.start(model)
            for number in range(3):
                x = torch.randn(64, 64, generator=torch.Generator().manual_seed(step * 3 + number))
                loss = model(x).square().mean()
                loss.backward()
                losses.append(loss.item().hex())
            for method in (debugger.stop, debugger.step):
                try:
                    method()
                except Exception as error:
                    raised.append([method.__name__, type(error).__name__, str(error)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        try:
            debugger._recorder.finish()
        except Exception as error:
            raised.append(["finish", type(error).__name__, str(error)])
        recorder = debugger._recorder
        return {
            "limit": limit, "store": store, "task": task, "path": path, "raised": raised, "losses": losses,
            "lost": recorder.lost and recorder.lost.step, "whole": recorder.complete_steps, "told": told.getvalue(),
        }

    for store, task in (("packed", "tensor"), ("files", "tensor"), ("packed", "statistics")):
        for limit in (0, 100_000, 40_000, 10_000, 5_000, 100):
            records.append(run(limit, store, task))
    print(json.dumps(records))
"""


@pytest.fixture(scope="module")
def full_runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Training recorded while no file may grow beyond a size, as on a full disk."""
    with start_python(FULL, tmp_path_factory.mktemp("full")) as process:
        out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    found: list[dict[str, Any]] = json.loads(out)
    return found


def test_a_full_disk_changes_no_result(full_runs: list[dict[str, Any]]) -> None:
    assert len({tuple(run["losses"]) for run in full_runs}) == 1
    assert not any(run["raised"] for run in full_runs)


def test_on_a_full_disk_what_is_there_can_be_read(full_runs: list[dict[str, Any]]) -> None:
    written = 0
    for run in full_runs:
        for file in Path(run["path"]).rglob("dump.json"):
            read(file.parent)
            written += 1
        for file in Path(run["path"]).rglob("*.json"):
            json.loads(file.read_text())
        for data in Path(run["path"]).rglob("*.pt"):
            torch.load(data)
    assert written > 9


def test_on_a_full_disk_there_is_one_clear_error(full_runs: list[dict[str, Any]]) -> None:
    for run in full_runs:
        assert run["told"].count("error:") == (run["lost"] is not None)
        if run["lost"] is not None:
            assert run["path"] in run["told"] and "File too large" in run["told"]
    assert {run["lost"] for run in full_runs if not run["limit"]} == {None}
    assert {run["lost"] for run in full_runs if run["limit"] == 5_000} == {0}


def test_on_a_full_disk_steps_are_whole_or_say_that_they_are_not(full_runs: list[dict[str, Any]]) -> None:
    clean = {(run["store"], run["task"]): read_names(Path(run["path"])) for run in full_runs if not run["limit"]}
    for run in full_runs:
        names = clean[run["store"], run["task"]]
        for step, (found, unfinished) in read_names(Path(run["path"])).items():
            assert (found == names[step][0]) or unfinished
            assert unfinished == (step == run["lost"])
        assert run["whole"] == [step for step in range(3) if run["lost"] is None or step < run["lost"]]


def read_names(run: Path) -> dict[int, tuple[list[str], bool]]:
    """The names of a run's records by step, and whether the step says that it is unfinished."""
    found = {}
    for file in run.glob("step*/rank/dump.json"):
        head = json.loads(file.read_text())
        found[int(file.parts[-3].removeprefix("step"))] = list(head["data"]), "unfinished" in head["probe"]
    return found


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("size", [64, 40_000])
def test_a_disk_that_is_full_for_a_while_ends_the_recording(
    tmp_path: Path, store: str, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records until then stay; those that come once there is room again are not half a step."""
    values = [torch.randn(size) for _ in range(24)]
    found = Recording(tmp_path / "run", level="L1", task="tensor", store=store)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        found.start()
        for number, value in enumerate(values):
            if number == 8:
                found.stop()
                files = [path.stat().st_size for path in found.path.rglob("tensors.safetensors")]
                least = files[0] + size * 6 if files else 300
                resource.setrlimit(resource.RLIMIT_FSIZE, (least, hard))
                found.start()
            F.relu(value)
            if number == 16:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        found.stop()
        found.step()
        found.start()
        F.gelu(values[0])
        found.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
        found.finish()
    data = read(found.directory())
    names = list(found.records())
    assert names == [f"Functional.relu.{i}.forward" for i in range(len(names))] and 8 <= len(names) < 16
    assert "unfinished" in found.head()["probe"] and not (found.path / "step1").exists()
    for number, value in enumerate(values[: len(names)]):
        stored = data.get(f"Functional.relu.{number}.forward.input.0.pt")
        assert number >= 8 or stored is not None
        assert stored is None or stored.tobytes() == raw(value)
    told = capsys.readouterr().err
    assert told.count("error:") == 1 and "File too large" in told and "step 0" in told


# -- places -----------------------------------------------------------------------------------------


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(dump_path="runs/one", level="L1", task="tensor")
    for number in range(2):
        debugger.start()
        monkeypatch.chdir(tmp_path / "elsewhere")
        torch.ones(2) * number
        debugger.stop()
        debugger.step()
    debugger._recorder.finish()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    for number in range(2):
        assert len(read(tmp_path / "runs" / "one" / f"step{number}" / "rank")) == 2


def test_a_directory_that_is_removed_meanwhile(tmp_path: Path) -> None:
    found = Recording(tmp_path / "run", level="L1")
    found.start()
    torch.ones(2) + 1
    shutil.rmtree(found.path)
    found.stop()
    assert list(found.records(0)) == ["Tensor.__add__.0.forward"]  # it is made again
    found.step()
    found.start()
    torch.ones(2) + 1
    found.stop()
    found.finish()
    assert list(found.records(1)) == ["Tensor.__add__.0.forward"]


# -- what is written --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
def test_the_files_of_a_step(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level, task="tensor") as found:
        found.start(model)
        train(model)
        found.stop()
        found.step()
    assert {path.name for path in found.path.iterdir()} == {"step0"}
    assert {path.name for path in (found.path / "step0").iterdir()} == {"rank"}
    phases = {"conditions.json", "step_phases.json"} if level != "L2" else {"conditions.json"}
    assert {path.name for path in found.directory().iterdir()} == {*FILES, *phases, "dump_tensor_data"}
    head = found.head()
    assert [key for key in head if key != "probe"] == ["task", "level", "framework", "dump_data_dir", "data"]
    assert (head["task"], head["level"], head["framework"]) == ("tensor", level, "pytorch")
    assert head["dump_data_dir"] == f"{found.path}/step0/rank/dump_tensor_data"
    groups = json.loads((found.directory() / "stack.json").read_text())
    assert list(groups) == [str(number) for number in range(len(groups))]
    stacked = [name for names, _ in groups.values() for name in names]
    assert sorted(stacked) == sorted(name for name in found.records() if ".forward" in name)
    line = re.compile(r"File (/[^,]+|<[^>]+>), line \d+, in [^,]+, \n .+")
    for _, lines in groups.values():
        assert lines and all(line.fullmatch(text) for text in lines)
        assert not any("probe_pytorch" in text.split(",")[0] for text in lines)
        assert any(f"File {recorder_files.__file__}" in text and "in train" in text for text in lines)
    parents = found.parents()
    assert (parents == {}) == (level in ("L1", "L2"))
    assert all(parent is None or parent in parents for parent in parents.values())


def test_the_files_of_a_debug_step(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug", task="tensor") as found:
        found.debugger.save({"a": [torch.ones(2)]}, "x")
        found.step()
    assert {path.name for path in found.directory().iterdir()} == {
        "conditions.json",
        "debug.json",
        "dump_tensor_data",
    }


def test_the_files_without_extra_info(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="mix", extra_info=False) as found:
        found.start(model)
        train(model)
        found.stop()
        found.step()
    assert {path.name for path in found.directory().iterdir()} == {
        "conditions.json",
        "dump.json",
        "step_phases.json",
    }
    assert all(step_phase["stack"] == [] for step_phase in found.head(name="step_phases.json")["phases"])
    assert len(found.records()) > 10


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_the_tree_of_parents(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        train(model)
        found.stop()
        found.step()
    parents = found.parents()
    outer = "Module.1.Sequential.forward.0"
    assert parents["Module.0.Linear.forward.0"] is None and parents[outer] is None
    assert parents["Module.1.0.ReLU.forward.0"] == outer
    assert parents["Module.1.1.LayerNorm.backward.0"] == "Module.1.Sequential.backward.0"
    assert parents["Module.1.Sequential.backward.0"] is None
    assert not any("parameters_grad" in name for name in parents)
    if level == "mix":
        assert parents["Functional.relu.0.forward"] == "Module.1.0.ReLU.forward.0"
        assert parents["Functional.relu.0.backward"] == "Module.1.0.ReLU.backward.0"
        assert parents["Tensor.square.0.forward"] is None


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        pytest.param("files", 0o640),
        ("directories", 0o750),
        ("lock", 0o640),
    ],
)
def test_others_may_not_look(tmp_path: Path, store: str, what: str, wanted: int) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "deep").mkdir()
        found = Recording(tmp_path / "deep" / "run", level="mix", task="tensor", store=store)
        model = net()
        found.start(model)
        train(model)
        found.stop()
        during = {path: path.stat().st_mode for path in [found.path, *found.path.rglob("*")]}
        found.step()
        found.finish()
        after = {path: path.stat().st_mode for path in [found.path, *found.path.rglob("*")]}
    finally:
        os.umask(before)
    for paths in (during, after):
        kinds = {
            "directories": {p: m for p, m in paths.items() if stat.S_ISDIR(m)},
            "lock": {p: m for p, m in paths.items() if p.name.endswith(".lock")},
            "files": {p: m for p, m in paths.items() if stat.S_ISREG(m) and not p.name.endswith(".lock")},
        }
        assert {str(p): oct(m & 0o777) for p, m in kinds[what].items() if m & 0o777 != wanted} == {}
    assert not list(found.path.rglob("*.lock"))


def test_more_than_a_thousand_records_are_written_before_the_end(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.start()
        file, written, seen = found.directory() / "dump.json", 0, []
        value = torch.ones(1)
        for _ in range(2600):
            value = value * 1.0001
            if file.exists() and file.stat().st_mtime_ns != written:
                written = file.stat().st_mtime_ns
                seen.append(len(found.records()))
                assert len(read(found.directory())) == 2 * seen[-1]
        found.stop()
        found.step()
    assert seen[0] == 1000 and 1000 < seen[1] <= 2000
    assert len(found.records()) == 2600
    assert len(read(found.directory())) == 5200


def test_the_header_of_the_packed_file_outgrows_its_room(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        for _ in range(2):  # the second step keeps the room that the first one took
            found.start()
            value = torch.ones(3)
            for _ in range(900):
                value = value * 1.0001
            found.stop()
            assert len(read(found.directory(found.debugger._recorder._step))) == 1800
            found.step()
    for step in range(2):
        assert len(read(found.directory(step))) == 1800
        names = {path.name for path in (found.directory(step) / "dump_tensor_data").iterdir()}
        assert names == {"tensors.safetensors"}


def test_both_stores_hold_and_compare_the_same(tmp_path: Path, rows_of: Callable[..., Any]) -> None:
    found = {}
    for store in STORES:
        model = net().to(torch.float32)
        with recording(tmp_path / store, level="mix", task="tensor", store=store) as found[store]:
            found[store].start(model)
            train(model)
            F.relu(torch.ones(3, dtype=torch.bfloat16))
            F.relu(torch.arange(4))
            F.softmax(torch.ones(2, 3).t(), -1)
            torch.ones(2, dtype=torch.complex64) * 1j
            torch.ones(0, 3) + 1
            torch.tensor([True, False]) & True
            found[store].stop()
            found[store].step()
    packed, files = (found[store] for store in STORES)
    ours, theirs = read(packed.directory()), read(files.directory())
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name].tobytes() != theirs[name].tobytes()] == []
    assert [name for name in ours if ours[name].dtype != theirs[name].dtype] == []
    assert [name for name in ours if ours[name].shape != theirs[name].shape] == []
    model = net()
    with torch.no_grad():
        model[0].weight.add_(1e-3)
    with recording(tmp_path / "target", level="mix", task="tensor") as target:
        target.start(model)
        train(model)
        target.stop()
        target.step()
    rows = [rows_of(target.directory(), golden.directory()) for golden in (packed, files)]
    assert rows[0] == rows[1] and len(rows[0]) > 50
    assert any(row != other for row, other in zip(rows[0], rows_of(packed.directory(), files.directory())))


def test_a_single_file_as_msprobe_writes_it(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="tensor", store="files") as found:
        found.start()
        base = torch.arange(1000.0)
        F.relu(base[10:12])
        F.gelu(base.reshape(20, 50).t()[0])
        found.stop()
        found.step()
    directory = found.directory() / "dump_tensor_data"
    path = directory / "Functional.relu.0.forward.input.0.pt"
    assert path.stat().st_size < 2000  # not the storage that it is a part of
    value = torch.load(path)
    assert type(value) is Tensor and value.tolist() == [10.0, 11.0] and not value.requires_grad
    turned = torch.load(directory / "Functional.gelu.0.forward.input.0.pt")
    assert turned.is_contiguous() and turned.tolist() == base.reshape(20, 50)[:, 0].tolist()


def test_a_name_too_long_for_a_file_has_no_data(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug", task="tensor", store="files") as found:
        found.debugger.save(torch.ones(2), "x" * 300)
        found.debugger.save(torch.ones(2), "short")
        found.step()
    records = found.records(name="debug.json")
    assert "data_name" not in records[f"{'x' * 300}.0.debug"]
    assert records["short.0.debug"]["data_name"] == "short.0.debug.pt"
    assert [path.name for path in (found.directory() / "dump_tensor_data").iterdir()] == ["short.0.debug.pt"]


def test_a_name_that_would_lead_elsewhere(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug", task="tensor", store="files") as found:
        found.debugger.save({"../../../up": torch.ones(2)}, "../x")
        found.step()
    (path,) = (found.directory() / "dump_tensor_data").iterdir()
    assert path.suffix == ".pt"
    assert [item.name for item in tmp_path.iterdir() if item.is_dir()] == ["run"]
