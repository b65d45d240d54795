"""The golden on disk: its header, steps and ranks, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_recording.diff_check.checks import check_same_way, compare_with_golden
from probe_recording.diff_check.golden_run import read_golden_run
from probe_recording.settings.config import Config
from probe_recording.settings.diff_check_settings import DEFAULT_CALL_COUNT

from probe_core.errors import UserError


def write(root: Path, step: int = 0, label: str = "rank", **head: Any) -> Path:
    """Write a record file; ``md5`` is the checksum of its only tensor."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "Max": 1.0, "Min": 1.0, "Mean": 1.0}
    leaf |= {"Norm": 1.0} | ({"md5": head.pop("md5")} if "md5" in head else {})
    fields = {"task": "statistics", "level": "L1", "framework": "pytorch", **head}
    data = {"Torch.add.0.forward": {"input_args": [{"type": "int", "value": 1}], "input_kwargs": {}, "output": [leaf]}}
    file = root / f"step{step}" / label / "dump.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**fields, "data": data}))
    return file


@pytest.mark.parametrize(("checksum", "summary"), [({}, "statistics"), ({"md5": "0" * 8}, "md5"),
                                                   ({"md5": "0" * 16}, "xxh3")])  # fmt: skip
def test_read_golden_run(tmp_path: Path, checksum: dict[str, str], summary: str) -> None:
    files = [write(tmp_path, step, label, **checksum) for step in (1, 3) for label in ("rank0", "rank1")]
    golden = read_golden_run(tmp_path, "shown")
    assert (golden.task, golden.level, golden.framework, golden.summary) == ("statistics", "L1", "pytorch", summary)
    assert golden.steps == [1, 3] and golden.settings is None and golden.shown_path == "shown"
    assert golden.find_file(3, 1) == files[3]
    assert golden.find_file(2, 0) is golden.find_file(3, 2) is None


def test_read_golden_run_of_a_single_process(tmp_path: Path) -> None:
    file = write(tmp_path)
    assert read_golden_run(tmp_path).find_file(0, 0) == file


@pytest.mark.parametrize("content", ["", "[]", '{"task": "statistics"', '{"task": "statistics"}', "\0\1"])
def test_read_golden_run_refuses_a_damaged_file(tmp_path: Path, content: str) -> None:
    write(tmp_path).write_text(content)
    with pytest.raises(UserError, match=r"dump\.json"):
        read_golden_run(tmp_path)


def test_read_golden_run_refuses_what_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError):
            read_golden_run(path)
    file = write(tmp_path)
    with pytest.raises(UserError, match="does not hold the steps of a recording"):
        read_golden_run(file.parent)


def test_read_golden_run_refuses_a_task_without_values(tmp_path: Path) -> None:
    write(tmp_path, task="structure")
    with pytest.raises(UserError, match='task "structure", which holds nothing to compare'):
        read_golden_run(tmp_path)


@pytest.mark.parametrize(
    ("head", "message"),
    [({"level": "L0"}, "at level L0, and this run would be recorded at level L1"),
     ({"framework": "mindspore"}, "from mindspore, and this run would be recorded from pytorch"),
     ({"probe": {"settings": {"double": True}}}, r"in float64 \(--double\)"),
     ({"probe": {"slices": "[0:2] in dimension 0"}}, r"holds \[0:2\] in dimension 0, and .* whole tensors")],
)  # fmt: skip
def test_check_same_way_refuses(tmp_path: Path, head: dict[str, Any], message: str) -> None:
    write(tmp_path / "golden", **head)
    golden = read_golden_run(tmp_path / "golden")
    with pytest.raises(UserError, match=message):
        check_same_way(golden, Config(tmp_path / "run"), "pytorch")


def test_check_same_way_refuses_other_steps_and_the_same_directory(tmp_path: Path) -> None:
    write(tmp_path, 2)
    golden = read_golden_run(tmp_path)
    check_same_way(golden, Config(tmp_path / "run", steps=frozenset({1, 2})), "pytorch")
    with pytest.raises(UserError, match="none of the steps"):
        check_same_way(golden, Config(tmp_path / "run", steps=frozenset({1})), "pytorch")
    with pytest.raises(UserError, match="is the directory of this run"):
        check_same_way(golden, Config(tmp_path), "pytorch")


def test_compare_with_golden(tmp_path: Path) -> None:
    config = compare_with_golden(Config(tmp_path, task="tensor"), Path("golden"), None)
    assert config.task == "statistics" and config.diff_check is not None
    assert (config.diff_check.call_count, config.diff_check.shown_path) == (DEFAULT_CALL_COUNT, "golden")
    assert config.diff_check.golden.is_absolute()
    for wrong in (Config(tmp_path, task="structure"), Config(tmp_path, level="L2")):
        with pytest.raises(UserError):
            compare_with_golden(wrong, Path("golden"), None)
    with pytest.raises(UserError, match="--keep"):
        compare_with_golden(Config(tmp_path), Path("golden"), 0)
