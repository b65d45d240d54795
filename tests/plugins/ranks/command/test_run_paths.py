"""The spellings of msprobe 26 and 8.3 for ``probe compare``, and runs without comparable tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs.recorded import forward, scalar, tensor, write_run

CALLS = {"Torch.a.0.forward": forward(tensor(), scalar(1))}


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two equal runs of statistics."""
    return [write_run(tmp_path / side, CALLS) for side in ("t", "g")]


@pytest.fixture
def without_files(tmp_path: Path) -> list[Path]:
    """Two tensor runs whose tensor files are missing."""
    calls = {"Torch.a.0.forward": forward(tensor(Max=None, Min=None, Mean=None, Norm=None), scalar(1))}
    return [write_run(tmp_path / f"lost_{side}", calls, task="tensor") for side in ("t", "g")]


def suffixes(out: Path) -> list[str]:
    return sorted(path.suffix for path in out.glob("*compare_result*"))


def test_compare_accepts_the_spellings_of_msprobe_26(probe: Any, runs: list[Path], tmp_path: Path) -> None:
    paths = ["-tp", runs[0], "-gp", runs[1]]
    assert probe("compare", *paths, "-fm", "-o", tmp_path / "a") == 0
    assert suffixes(tmp_path / "a") == [".csv"] and not list((tmp_path / "a").glob("advisor*"))
    assert "compared: 2 of 2" not in probe.out
    assert probe("compare", *paths, "--xlsx", "-tensor_log", "-o", tmp_path / "b") == 0
    assert suffixes(tmp_path / "b") == [".xlsx"] and "compared: 2 of 2" in probe.out
    long = ["--target_path", runs[0], "--golden_path", runs[1], "--fuzzy_match", "--output_path"]
    assert probe("compare", *long, tmp_path / "c") == 0


def test_compare_selects_ranks_and_steps_by_the_spellings_of_msprobe_26(probe: Any, tmp_path: Path) -> None:
    for side, step, rank in ((s, n, r) for s in "tg" for n in (0, 1) for r in (0, 1)):
        write_run(tmp_path / side / f"step{step}" / f"rank{rank}", CALLS)
    paths = ["-tp", tmp_path / "t", "-gp", tmp_path / "g", "--step", "1", "--rank", "0"]
    assert probe("compare", *paths, "-o", tmp_path / "o") == 0
    (table,) = (tmp_path / "o").rglob("compare_result*")
    assert table.name.startswith("compare_result_rank0_") or table.name.startswith("compare_result_2")


COMMON: dict[tuple[str, ...], dict[str, Any]] = {
    ("-da", "--diff_analyze"): {"answers": ["first_difference"]},
    ("-dm FILE", "--data_mapping FILE"): {"mapping": "FILE"},
    ("-am", "-am FILE", "--api_mapping FILE"): {"across": True},
    ("-cm", "-cm FILE", "--cell_mapping FILE"): {"across": True},
    ("-lm FILE", "--layer_mapping FILE"): {"layer_mapping": "FILE"},
}
RELEASES: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {
    "-i": {
        ("-s", "--stack_mode"): {"stack": "show"},
        ("-c", "--compare_only"): {"advise": False, "answer": False},
        ("-f", "--fuzzy_match"): {"matcher": "fuzzy"},
        ("-hl", "--highlight"): {"highlight": True},
        **COMMON,
    },
    "-tp": {
        ("-fm", "--fuzzy_match"): {"matcher": "fuzzy"},
        ("--xlsx",): {"formats": ["xlsx"]},
        ("--rank 1,3",): {"ranks": [1, 3]},
        ("--step 2",): {"steps": [2]},
        ("-tensor_log", "--is_print_compare_log"): {"formats": ["csv"]},
        **COMMON,
    },
}
"""Spellings of msprobe 8.3 (``-i``) and 26 (``-tp``) beside the paths, with fields of the plan that they set."""
SPELLINGS = [
    pytest.param(paths, spelling, fields, id=f"{paths} {spelling}")
    for paths, options in RELEASES.items()
    for spellings, fields in options.items()
    for spelling in spellings
]


@pytest.mark.parametrize(("paths", "spelling", "fields"), SPELLINGS)
def test_compare_plans_what_a_spelling_of_msprobe_asks_for(
    probe: Any, runs: list[Path], tmp_path: Path, paths: str, spelling: str, fields: dict[str, Any]
) -> None:
    mapping, compare_file = tmp_path / "map.yaml", tmp_path / "compare.json"
    mapping.write_text("{}")
    stack = {"stack_path": str(runs[0].parent / "stack.json"), "is_print_compare_log": True}
    compare_file.write_text(json.dumps({"npu_path": str(runs[0]), "bench_path": str(runs[1]), **stack}))
    given = ["-i", compare_file] if paths == "-i" else ["-tp", runs[0], "-gp", runs[1]]
    options = spelling.replace("FILE", str(mapping)).split()
    assert probe("compare", *given, "-o", tmp_path / "o", *options, "--print-plan") == 0, probe.err
    plan = json.loads(probe.out)
    expected = {key: str(mapping) if value == "FILE" else value for key, value in fields.items()}
    if " FILE" in spelling and "across" in fields:
        expected = {"api_mapping" if spelling.lstrip("-").startswith("a") else "cell_mapping": str(mapping)}
    assert {key: plan[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-tp", "a"], "-tp and -gp must be used together"),
        (["-tp", "a", "-gp", "b", "c", "d"], "exclude TARGET"),
        (["a", "b", "-tensor_log"], "-tensor_log needs -tp and -gp"),
        (["a", "b", "--xlsx", "--format", "csv"], "--xlsx and --format exclude"),
    ],
)
def test_compare_refuses_mixed_spellings(probe: Any, arguments: list[str], message: str) -> None:
    assert probe("compare", *arguments) == 2
    assert message in probe.err


def test_compare_file_may_hold_comments(probe: Any, runs: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "compare.json"
    file.write_text(
        "/* both\n runs */ {\n"
        f'  "npu_path": {json.dumps(str(runs[0]))},  // the target\n'
        f'  "bench_path": {json.dumps(str(runs[1]))}, # the golden\n'
        '  "is_print_compare_log": true\n}'
    )
    assert probe("compare", "-i", file, "-o", tmp_path / "o") == 0
    file.write_text('{"npu_path": "a//b # c /* d */", "bench_path": "http:// }')
    assert probe("compare", "-i", file) == 2 and "is not valid JSON" in probe.err
    file.write_text('{"npu_path": "a//b#c/*d*/", "bench_path": "x"}')
    assert probe("compare", "-i", file) == 2 and "a/b#c/*d*" in probe.err


def test_missing_tensor_files_are_not_comparable(probe: Any, without_files: list[Path], tmp_path: Path) -> None:
    assert probe("compare", *without_files, "-o", tmp_path / "o", "--format", "csv") == 2
    assert probe.out.startswith("NOT COMPARABLE: the target's only floating-point tensor could not be compared")
    assert "compared: 1 of 2" not in probe.out and "Nothing was compared" not in probe.err
    assert suffixes(tmp_path / "o") == [".csv"]


def test_drop_in_spellings_exit_with_0_without_comparable_tensors(
    probe: Any, without_files: list[Path], tmp_path: Path
) -> None:
    file = tmp_path / "compare.json"
    file.write_text(json.dumps(dict(zip(("npu_path", "bench_path"), map(str, without_files)))))
    for spelling in (["-i", file], ["-tp", without_files[0], "-gp", without_files[1]]):
        assert probe("compare", *spelling, "-o", tmp_path / "o") == 0
        assert "no tensor could be compared; the exit code is 0, as scripts with this spelling expect" in probe.err
        assert "NOT COMPARABLE" in probe.out


def test_integers_without_tensor_files_are_not_comparable(probe: Any, tmp_path: Path) -> None:
    leaf = tensor(dtype="torch.int64", Max=None, Min=None, Mean=None, Norm=None)
    calls = {"Torch.a.0.forward": forward(leaf, *(scalar(n) for n in range(9)))}
    runs = [write_run(tmp_path / side, calls, task="tensor") for side in ("t", "g")]
    assert probe("compare", *runs, "-o", tmp_path / "o") == 2
    assert probe.out.startswith("NOT COMPARABLE: the only recorded tensor could not be compared")
