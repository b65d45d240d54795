"""Bad input: one sentence what, one how to mend it, exit 2, no traceback, nothing half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.recorded import forward, scalar, tensor, write_run

GOOD = {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])}


@pytest.fixture
def refused(probe: Any, tmp_path: Path) -> Any:
    """``refused(target, golden, …)``: exit 2, no traceback, no output; what was said."""

    def check(*arguments: str | Path) -> str:
        out = tmp_path / "refused-out"
        assert probe("compare", *arguments, "-o", out) == 2, probe.out + probe.err
        assert "Traceback" not in probe.err
        assert probe.err.startswith("error: ")
        assert len(probe.err.splitlines()) >= 2, "no word on how to mend it"
        assert not out.exists() or not list(out.iterdir())
        return str(probe.err)

    return check


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_run(tmp_path / "good", GOOD)


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("[1]", "does not hold a JSON object"),
        ("null", "does not hold a JSON object"),
        ('{"task": "statistics", "data": {"a": ', "at byte 37"),
        ('{"task": "statistics", "data": {"a": nul}}', "at byte 37"),
        ('{"task": "statistics"}', 'has no "data"'),
        ('{"task": "statistics", "data": 3}', "data must be an object"),
        ('{"data": {}}', '"task" is missing'),
        ('{"task": 3, "data": {}}', '"task" must be a text'),
        ('{"task": "overflow_check", "data": {}}', "holds nothing to compare"),
        ('{"task": "structure", "data": {"a.0.forward": {}}}', "holds nothing to compare"),
        ('{"task": "statistics", "data": {}}', "holds no values"),
        ('{"task": "statistics", "data": {}} x', "text follows"),
        ('{"task": "statistics", "data": {"a": {}, "a": {}}}', "appears twice"),
        ('{"task": "statistics", "data": {"a": 1}}', 'data["a"] must be an object'),
        (
            '{"task": "statistics", "data": {"a": {"input": [{"type": "t", "dtype": "d", "shape": [-1]}]}}}',
            'data["a"].input[0].shape must hold non-negative integers',
        ),
        (
            '{"task": "statistics", "data": {"a": {"output": [{"type": "t", "dtype": 3, "shape": []}]}}}',
            'data["a"].output[0].dtype must be a text',
        ),
        (
            '{"task": "statistics", "data": {"a": {"output": [{"type": "t", "dtype": "d", "Max": []}]}}}',
            'data["a"].output[0].Max must be a number',
        ),
        (
            '{"task": "tensor", "data": {"a": {"input": [{"type": "t", "dtype": "", "data_name": "../x"}]}}}',
            "inside the run directory",
        ),
        ('{"task": "statistics", "data": {"a": {"output": ' + "[" * 300 + "]" * 300 + "}}}", "levels deep"),
        ('{"task": "statistics", "data": {"a": ' + "[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_damaged_records(text: str, says: str, refused: Any, good: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad" / "dump.json"
    bad.parent.mkdir()
    bad.write_text(text)
    assert says in refused(bad, good)
    assert says in refused(good, bad)


@pytest.mark.parametrize("cut", range(1, 400, 23))
def test_a_record_file_cut_off_anywhere(cut: int, refused: Any, good: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad" / "dump.json"
    bad.parent.mkdir()
    bad.write_bytes(good.read_bytes()[:-cut])
    assert "is not valid JSON" in refused(bad, good)


def test_what_is_not_there(refused: Any, good: Path, tmp_path: Path) -> None:
    assert "it does not exist" in refused(tmp_path / "nowhere", good)
    (tmp_path / "hollow").mkdir()
    assert "There is no dump.json" in refused(tmp_path / "hollow", good)
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert "is not a record file" in refused(other, good)
    assert "Two runs are needed" in refused(good)
    assert "Two runs are needed" in refused()


def test_runs_that_do_not_go_together(refused: Any, good: Path, tmp_path: Path) -> None:
    tensors = write_run(tmp_path / "tensors", GOOD, task="tensor")
    sums = write_run(tmp_path / "sums", {"Torch.exp.0.forward": forward(tensor(md5="ab"))})
    debug = write_run(tmp_path / "debug", {"x.0.debug": tensor()}, name="debug.json")
    assert "holds tensors" in refused(tensors, good)
    assert "checksums" in refused(sums, good)
    assert "same kind of records" in refused(debug, good)


def test_nothing_matched_shows_the_nearest_names(refused: Any, good: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", {"Torch.expm1.0.forward": forward(tensor())})
    said = refused(good, other)
    assert "No row of the target has a partner" in said
    assert "nearest in the golden: Torch.expm1.0.forward" in said


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "is empty"),
        ("[]", "where an object was expected"),
        ("{", "is not valid JSON"),
        ("{}", 'needs "npu_path"'),
        ('{"npu_path": 3, "bench_path": "x"}', 'needs "npu_path"'),
        ('{"npu_path": "x"}', 'needs "bench_path"'),
        ('{"npu_path": "x", "bench_pth": "y"}', "Did you mean bench_path?"),
        ('{"npu_path": "x", "bench_path": "y", "stack_path": 1}', "must be a path"),
        ('{"npu_path": "x", "bench_path": "y", "is_print_compare_log": 1}', "must be true or false"),
        ('{"npu_path": "x", "bench_path": "y"}', "it does not exist"),
    ],
)
def test_compare_files(text: str, says: str, refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    path.write_text(text)
    assert says in refused("-i", path)


@pytest.mark.parametrize(
    "text, says",
    [
        ("a: [", "is not valid yaml at line"),
        ("- a", "does not map names to names"),
        ("a: 3", "does not map names to names"),
        ("Torch.exp.0.forward.input.9: Torch.exp.0.forward.input.0", "nearest: Torch.exp.0.forward.input.0"),
        ("Torch.exp.0.forward.input.0: Torch.nope", "the golden run does not have"),
        ("!!python/object/apply:os.system ['touch boom']", "is not valid yaml"),
    ],
)
def test_mapping_files(text: str, says: str, refused: Any, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(text)
    assert says in refused(good, good, "-dm", path)
    assert not Path("boom").exists()


def test_options(refused: Any, good: Path, tmp_path: Path) -> None:
    for option in ("--match", "--matcher"):
        said = refused(good, good, "-f", option, "fuzzy")
        assert "exclude each other" in said and re.search(rf"{option}\b", said)
    assert "-i (--input)" in refused(good, "--input_path", tmp_path / "compare.json")
    assert 'There is no matcher called "nope"' in refused(good, good, "--matcher", "nope")
    assert 'There is no metric called "nope"' in refused(good, good, "--metric", "nope")
    assert 'There is no format called "doc"' in refused(good, good, "--format", "doc")
    assert "needs tensors" in refused(good, good, "--metric", "rmse")
    assert "No reader" in refused(good, good, "--framework", "caffe")
    assert "cannot be read" in refused(good, good, "-dm", tmp_path / "nowhere.yaml")
    assert "No such option" in refused(good, good, "--colour")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
@pytest.mark.parametrize("name", ["stat_mix_dist2", "tensor_L1_datamap"])  # two ranks, and one
def test_paths_that_no_file_can_have(name: str, path: str, runs: Any, probe: Any, tmp_path: Path) -> None:
    base = runs(name)
    sound = {"npu_path": str(base / "npu_dump"), "bench_path": str(base / "bench_dump")}
    file = tmp_path / "compare.json"
    for key in ("npu_path", "bench_path", "stack_path"):
        file.write_text(json.dumps({**sound, "is_print_compare_log": True, key: path}))
        assert probe("compare", "-i", file, "-s", "-o", tmp_path / key) == 2, probe.out
        assert "Traceback" not in probe.err and probe.err.startswith("error: ")
        assert key != "stack_path" or "stack file" in probe.err


def test_ambiguous_paths_list_the_choices(refused: Any, good: Path, tmp_path: Path) -> None:
    for step in ("step0", "step1"):
        write_run(tmp_path / "dump" / step / "rank", GOOD)
    said = refused(tmp_path / "dump", good)
    assert "several steps" in said and "step0" in said and "step1" in said
    for rank in ("rank0", "rank1", "rank10"):
        write_run(tmp_path / "ranks" / rank, GOOD)
    said = refused(tmp_path / "ranks", good)
    assert "is one rank, and the other run has several" in said
    assert str(tmp_path / "ranks" / "rank10" / "dump.json") in said


def test_no_permission(refused: Any, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a directory without permission, which root would be free to write in."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    assert "is not writable" in refused(good, good)


@pytest.mark.parametrize("framework", [(), ("--framework", "pytorch"), ("--framework", "mindspore")])
@pytest.mark.parametrize("side", [0, 1])
def test_a_record_file_that_may_not_be_read(
    side: int,
    framework: tuple[str, ...],
    refused: Any,
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stands in for a file without permission, which root would be free to read."""
    secret = write_run(tmp_path / "secret", GOOD)
    opened = Path.open

    def forbidden(path: Path, *arguments: Any, **more: Any) -> Any:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", forbidden)
    said = refused(*((secret.parent, good) if side == 0 else (good, secret.parent)), *framework)
    if side == 0 or framework != ("--framework", "mindspore"):
        assert f"{secret} cannot be read: Permission denied." in said


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read any file")
def test_a_record_file_without_permission(refused: Any, good: Path, tmp_path: Path) -> None:
    secret = write_run(tmp_path / "secret", GOOD)
    secret.chmod(0)
    assert f"{secret} cannot be read: Permission denied." in refused(secret.parent, good)


def test_output_that_is_a_file(probe: Any, good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert probe("compare", good, good, "-o", tmp_path / "file") == 2
    assert "is a file" in probe.err


def test_a_full_disk(probe: Any, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe_reporters.csv import CsvWriter

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CsvWriter, "write_batch", full)
    assert probe("compare", good, good, "-o", tmp_path / "o", "--format", "xlsx,csv") == 2
    assert "No space left on device" in probe.err
    assert list((tmp_path / "o").iterdir()) == []


def test_a_rank_that_cannot_be_compared_leaves_the_others(probe: Any, tmp_path: Path) -> None:
    for side in ("t", "g"):
        for rank in ("rank0", "rank1", "rank2"):
            write_run(tmp_path / side / rank, GOOD)
    (tmp_path / "t" / "rank1" / "dump.json").write_text("{")
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-c", "-o", tmp_path / "o") == 2
    assert "error: rank1: " in probe.err and "Traceback" not in probe.err
    names = sorted(path.name.split("_")[2] for path in (tmp_path / "o").glob("compare_result_*"))
    assert names == ["rank0", "rank2"]
    assert "rank0: 2 rows" in probe.out and "rank2: 2 rows" in probe.out


# -- tensor files: a row, never an abort -------------------------------------------------------


@pytest.fixture
def pair_of_runs(runs: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Writable copies of a small tensor pair: the two rank directories."""
    base = tmp_path / "pair"
    shutil.copytree(runs("tensor_L1_datamap"), base)
    return base / "npu_dump/step0/rank", base / "bench_dump/step0/rank"


NAME = "Torch.ones_like.0.forward.output.0"


def compare_rows(probe: Any, target: Path, golden: Path, out: Path) -> dict[str, dict[str, Any]]:
    probe("compare", target, golden, "-o", out, "--format", "jsonl")
    (path,) = out.glob("*.jsonl")
    return {row["NPU Name"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_a_missing_tensor_file_costs_a_row(probe: Any, pair_of_runs: Any, tmp_path: Path) -> None:
    target, golden = pair_of_runs
    (golden / "dump_tensor_data" / f"{NAME}.pt").unlink()
    row = compare_rows(probe, target, golden, tmp_path / "o")[NAME]
    assert probe.code == 0
    assert row["Err_message"] == f"Dump file: {NAME}.pt not found or read failed."
    assert row["Cosine"] == "unsupported" and row["Accuracy Reached or Not"] == "None"


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no zip", "cut", "hostile", "outside"])
def test_a_damaged_tensor_file_costs_a_row_and_is_said(
    damage: Any, probe: Any, pair_of_runs: Any, tmp_path: Path
) -> None:
    target, golden = pair_of_runs
    path = golden / "dump_tensor_data" / f"{NAME}.pt"
    data = path.read_bytes()
    path.unlink()
    if damage == "outside":
        secret = tmp_path / "secret.pt"
        secret.write_bytes(data)
        path.symlink_to(secret)
    elif damage == "hostile":
        path.write_bytes(
            data.replace(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cposix\nsystem\n(X\x0b\x00\x00\x00touch boom\n")
        )
    else:
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else damage)
    rows = compare_rows(probe, target, golden, tmp_path / "o")
    assert probe.code == 2, "damaged input is the user's to mend"
    assert "1 tensor file could not be read" in probe.err and "Traceback" not in probe.err
    assert rows[NAME]["Err_message"] == f"Dump file: {NAME}.pt not found or read failed."
    assert sum(row["Cosine"] == 1 for row in rows.values()) >= 1, "the other rows were measured"
    assert not Path("boom").exists()


def test_a_file_of_another_shape_than_its_record_is_a_row(probe: Any, pair_of_runs: Any, tmp_path: Path) -> None:
    target, golden = pair_of_runs
    files = golden / "dump_tensor_data"
    record = json.loads((golden / "dump.json").read_text())["data"]
    shapes = {
        leaf["data_name"]: leaf["shape"]
        for op in record.values() for part in op.values() if isinstance(part, list)
        for leaf in part if isinstance(leaf, dict) and "data_name" in leaf
    }  # fmt: skip
    other = next(name for name, shape in shapes.items() if shape != shapes[f"{NAME}.pt"])
    shutil.copy(files / other, files / f"{NAME}.pt")
    row = compare_rows(probe, target, golden, tmp_path / "o")[NAME]
    assert probe.code == 0
    assert row["Cosine"] == "shape unmatched" and row["Accuracy Reached or Not"] == "Unmatched"
    assert row["Err_message"] == "Shape of NPU and bench Tensor do not match. Skipped."


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.zeros(2, [("x", "f4")])])
def test_a_file_without_numbers_is_a_row(array: Any, probe: Any, tmp_path: Path) -> None:
    name = "Mint.a.0.forward.output.0"
    for side in ("t", "g"):
        data = {"Mint.a.0.forward": forward(output=[tensor(data_name=f"{name}.npy")])}
        path = write_run(tmp_path / side, data, task="tensor")
        path.write_text(path.read_text().replace("pytorch", "mindspore"))
        (path.parent / "dump_tensor_data").mkdir()
        np.save(path.parent / "dump_tensor_data" / f"{name}.npy", array)
    row = compare_rows(probe, tmp_path / "t", tmp_path / "g", tmp_path / "o")[name]
    assert (row["Cosine"], row["Err_message"]) == ("unsupported", "Data is unreadable.")


def test_blanks_and_chinese_in_paths(probe: Any, tmp_path: Path) -> None:
    one = write_run(tmp_path / "我的 运行" / "a b", GOOD)
    assert probe("compare", one, one, "-o", tmp_path / "结 果") == 0
    found = sorted(path.name.rpartition("_")[0] for path in (tmp_path / "结 果").iterdir())
    assert found == ["advisor", "answer", "compare_result", "compare_result"]


def test_scalars_with_chinese_and_lone_surrogates(probe: Any, tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": forward(scalar("中文"), scalar("\ud800x"), scalar("=1+1"))}
    raw = write_run(tmp_path / "a", data)
    raw.write_text(raw.read_text().replace("\\u4e2d\\u6587", "中文"), "utf-8")
    assert probe("compare", raw, raw, "-o", tmp_path / "o", "--format", "xlsx,csv,jsonl") == 0, probe.err
    text = next((tmp_path / "o").glob("*.csv")).read_text("utf-8")
    assert "中文" in text and "\ufffdx" in text and "'=1+1" in text
