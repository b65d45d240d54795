"""The command line as its users use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from support import ROOT
from support.programs import preloaded
from support.programs.interrupts import let_interrupts_in
from support.programs.preloaded import PreloadedPopen
from support.runs.recorded import forward, scalar, tensor, write_run

HEAVY = ("torch", "mindspore", "pandas", "openpyxl", "xlsxwriter", "numpy", "ml_dtypes", "yaml")


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **options)


def imported(*arguments: str) -> set[str]:
    """The top-level modules that a command imports."""
    log = python("-X", "importtime", *arguments).stderr
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in log.splitlines() if "|" in line}


def test_help_imports_nothing_heavy() -> None:
    assert not imported("-m", "probe_core.cli", "--help") & set(HEAVY)
    assert not imported("-m", "probe_core.cli", "compare", "--help") & set(HEAVY)
    assert not imported("-m", "probe_core.cli", "plugins") & (set(HEAVY) - {"yaml"})


def test_no_command_imports_a_framework(runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_datamap")
    command = ["-m", "probe_core.cli", "compare", str(base / "npu_dump"), str(base / "bench_dump")]
    for arguments in ([*command, "-o", str(tmp_path)], ["-m", "probe_core.cli", "plugins"],
                      ["-m", "probe_core.cli", "run", "--help"]):  # fmt: skip
        assert not imported(*arguments) & {"torch", "mindspore", "pandas"}


def test_the_function_of_the_seed_imports_no_torch(runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_datamap")
    code = (
        "import sys; from probe_pytorch import compare; "
        f"reports = compare({{'npu_json_path': r'{base}/npu_dump/step0/rank/dump.json', "
        f"'bench_json_path': r'{base}/bench_dump/step0/rank/dump.json'}}, r'{tmp_path}', fuzzy_match=True); "
        "assert 'torch' not in sys.modules; print(reports[0].counts.rows)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 10
    assert {path.suffix for path in tmp_path.iterdir()} == {".xlsx", ".txt", ".json"}


@pytest.mark.parametrize("wrong", [{"stack_mode": 1}, {"highlight": "yes"}, {"output_path": Path("x")}])
def test_the_function_checks_its_types(wrong: dict[str, Any]) -> None:
    from probe_pytorch import compare

    from probe_core.errors import UserError

    with pytest.raises(UserError, match="must be"):
        compare(**{"input_param": {"npu_json_path": "a", "bench_json_path": "b"}, "output_path": "o", **wrong})


def test_both_places_of_the_framework(probe: Any, runs: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(runs("stat_L1_datamap"))
    assert probe("-f", "pytorch", "compare", "-i", "compare.json", "-o", tmp_path / "a", "-f") == 0
    assert probe("compare", "--framework", "pytorch", "-i", "compare.json", "-o", tmp_path / "b") == 0
    assert probe("-f", "mindspore", "compare", "-i", "compare.json", "-o", tmp_path / "c") == 2


def test_output_may_lack_its_value(probe: Any, runs: Any, tmp_path: Path, monkeypatch: Any) -> None:
    base = runs("stat_L1_datamap")
    monkeypatch.chdir(tmp_path)
    assert probe("compare", base / "npu_dump", base / "bench_dump", "-c", "-o") == 0
    (path,) = (tmp_path / "output").iterdir()
    assert re.fullmatch(r"compare_result_\d{14}\.xlsx", path.name)
    assert path.stat().st_mode & 0o777 == 0o640


def test_every_way_to_name_a_run(probe: Any, runs: Any, rows_of: Any) -> None:
    base = runs("stat_L1_edge", "26.2.0")
    (golden,) = (base / "bench_dump" / "step0").iterdir()
    counts = set()
    for path in (golden / "dump.json", golden, golden.parent, base / "bench_dump"):
        counts.add(len(rows_of(path, golden)))
    assert len(counts) == 1


def test_ranks_are_compared_one_by_one(probe: Any, runs: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(runs("tensor_L1_dist2"))
    assert probe("compare", "-i", "compare.json", "-o", tmp_path) == 0
    names = sorted(re.sub(r"\d{14}", "T", path.name) for path in tmp_path.iterdir())
    assert names == ["advisor_rank0_T.txt", "advisor_rank1_T.txt", "answer_T.json",
                     "compare_result_rank0_T.xlsx", "compare_result_rank1_T.xlsx", "compare_summary_T.xlsx"]  # fmt: skip
    assert "1.05 against 1.0" in probe.out


def test_debug_files(probe: Any, runs: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(runs("debug_tensor"))
    assert probe("compare", "-i", "compare.json", "-o", tmp_path, "-hl") == 0
    assert any(path.name.startswith("debug_compare_result_") for path in tmp_path.iterdir())


@pytest.mark.parametrize("asked, shown", [([], False), (["-s"], True)])
def test_with_a_stack_path_s_decides(asked: list[str], shown: bool, probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs("stat_L1_datamap")
    ranks = {side: base / side / "step0" / "rank" for side in ("npu_dump", "bench_dump")}
    file = tmp_path / "compare.json"
    file.write_text(json.dumps({
        "npu_path": str(ranks["npu_dump"] / "dump.json"), "bench_path": str(ranks["bench_dump"] / "dump.json"),
        "stack_path": str(ranks["npu_dump"] / "stack.json"),
    }))  # fmt: skip
    assert probe("compare", "-i", file, "-o", tmp_path / "o", "--format", "csv", *asked) == 0
    head = next((tmp_path / "o").glob("*.csv")).read_text().splitlines()[0]
    assert ("NPU_Stack_Info" in head) is shown


def test_no_log_keeps_to_one_line_and_the_files(probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_edge")
    file = tmp_path / "compare.json"
    file.write_text(json.dumps({"npu_path": str(base / "npu_dump"), "bench_path": str(base / "bench_dump"),
                                "is_print_compare_log": False}))  # fmt: skip
    assert probe("compare", "-i", file, "-o", tmp_path / "o") == 0
    assert probe.out.startswith("DIVERGED: ") and "  1. " not in probe.out and "wrote" in probe.out


@pytest.mark.parametrize(
    "golden, fail_on, code",
    [(1.0, "error", 0), (1.0, "warning", 0), (9.0, "error", 1), (9.0, "warning", 1), (None, "error", 0),
     (None, "warning", 1), (9.0, None, 0)],
)  # fmt: skip
def test_fail_on(golden: float | None, fail_on: str | None, code: int, probe: Any, tmp_path: Path) -> None:
    """None: the golden lacks the second call, which is a warning."""
    data = {"Torch.a.0.forward": forward(tensor()), "Torch.b.0.forward": forward(tensor())}
    other = {"Torch.a.0.forward": forward(tensor(value=golden or 1.0))}
    if golden is not None:
        other["Torch.b.0.forward"] = forward(tensor())
    paths = write_run(tmp_path / "t", data), write_run(tmp_path / "g", other)
    options = ["--fail-on", fail_on] if fail_on else []
    assert probe("compare", *paths, "-o", tmp_path / "o", *options) == code


ONES, NINES = tensor(), tensor(value=9.0)
MANY = {f"Torch.m.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(20)}
NO_DATA = {key: None for key in ("Max", "Min", "Mean", "Norm")}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "agree": ({"Torch.a.0.forward": forward(ONES)}, {"Torch.a.0.forward": forward(ONES)}, "AGREE"),
    "diverged": (
        {"Torch.a.0.forward": forward(ONES, output=[NINES])},
        {"Torch.a.0.forward": forward(ONES, output=[ONES])},
        "DIVERGED",
    ),
    "differently": (  # the values agree, and the argument differs
        {"Torch.a.0.forward": forward(ONES, scalar(0.5), output=[ONES])},
        {"Torch.a.0.forward": forward(ONES, scalar(0.25), output=[ONES])},
        "AGREE",
    ),
    "one sided": (
        {"Torch.a.0.forward": forward(ONES), "Torch.b.0.forward": forward(ONES)},
        {"Torch.a.0.forward": forward(ONES)},
        "AGREE",
    ),
    "little": ({**MANY, "Torch.a.0.forward": forward(ONES)}, {"Torch.a.0.forward": forward(ONES)}, "NOT COMPARABLE"),
    "third": (
        {**dict(list(MANY.items())[:2]), "Torch.a.0.forward": forward(ONES, output=[ONES])},
        {"Torch.a.0.forward": forward(ONES, output=[ONES])},
        "CANNOT TELL",
    ),
}  # fmt: skip


@pytest.mark.parametrize("output", [[], ["-c"]], ids=["with answer", "tables only"])
@pytest.mark.parametrize(
    ("case", "suspect", "incomplete", "error"),
    [
        ("agree", 0, 0, 0),
        ("diverged", 1, 0, 1),
        ("differently", 1, 0, None),
        ("one sided", 0, 1, 0),
        ("little", 1, 1, 1),
        ("third", 1, 1, 1),
    ],
)
def test_fail_on_the_answer(
    case: str, suspect: int, incomplete: int, error: int | None, output: list[str], probe: Any, tmp_path: Path
) -> None:
    target, golden, outcome = CASES[case]
    paths = write_run(tmp_path / "t", target), write_run(tmp_path / "g", golden)
    codes = {None: 0, "suspect": suspect, "incomplete": incomplete, "error": error}
    for asked, code in codes.items():
        if asked is None or code is not None:
            options = ["--fail-on", asked] if asked else []
            assert probe("compare", *paths, "-o", tmp_path / "o", *output, *options) == code, asked
            assert probe.out.startswith(f"{outcome}: ")


def test_fail_on_where_nothing_could_be_measured(probe: Any, tmp_path: Path) -> None:
    """Exit code 2, with or without ``--fail-on``."""
    lacking = tensor(**NO_DATA)
    paths = [write_run(tmp_path / side, {"Torch.a.0.forward": forward(lacking)}) for side in "tg"]
    codes = [
        probe("compare", *paths, "-o", tmp_path / "o", *options)
        for options in (
            [],
            *(["--fail-on", asked] for asked in ("suspect", "incomplete", "warning", "error")),
        )
    ]
    assert probe.out.startswith("NOT COMPARABLE: ")
    assert codes == [2, 2, 2, 2, 2]


def test_a_mean_of_nearly_nothing_fails_nothing(probe: Any, tmp_path: Path) -> None:
    """The table says Warning, the summary and --fail-on do not."""
    leaf = {"Max": 2.0, "Min": -2.0, "Norm": 9.0}
    paths = [
        write_run(tmp_path / side, {"Torch.a.0.forward": forward(tensor(**{**leaf, "Mean": mean}))})
        for side, mean in (("t", 3e-9), ("g", -1e-9))
    ]
    assert probe("compare", *paths, "-o", tmp_path / "o", "--fail-on", "warning", "--format", "csv") == 0
    assert ",Warning," in next((tmp_path / "o").glob("*.csv")).read_text()
    assert probe.out.startswith("AGREE: within rounding in the only value that both runs recorded")


def test_print_plan_does_nothing_else(probe: Any, tmp_path: Path) -> None:
    assert probe("compare", "a", "b", "-o", tmp_path / "o", "-hl", "--metric", "ulp", "--print-plan") == 0
    plan = json.loads(probe.out)
    assert (plan["target"], plan["golden"], plan["highlight"], plan["metrics"]) == ("a", "b", True, ["ulp"])
    assert not (tmp_path / "o").exists()


def test_the_advisor_counts_rows_as_excel_does(probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_edge")
    assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", tmp_path) == 0
    advice = next(tmp_path.glob("advisor*")).read_text().splitlines()
    line, name = int(advice[0].removeprefix("Line: ")), advice[1].removeprefix("Suspect Nodes: ")
    sheet = load_workbook(next(tmp_path.glob("*.xlsx"))).worksheets[0]
    assert sheet.cell(line, 1).value == name == "Torch.abs.0.forward.input.0"
    assert advice[2].startswith("Expert Advice: 1. Analyze the model")


def test_a_run_without_fault_has_nothing_to_advise(probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_edge")
    assert probe("compare", base / "bench_dump", base / "bench_dump", "-o", tmp_path) == 0
    assert next(tmp_path.glob("advisor*")).read_text() == (
        "Line: NA\nSuspect Nodes: NA\nExpert Advice: All data in comparison result meets the accuracy requirements.\n"
    )
    assert probe.out.startswith("AGREE: equal in all 132 values that both runs recorded")


def test_the_demo_records_and_names_the_fault_on_its_first_line(
    probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", preloaded.run)
    assert probe("demo", tmp_path / "demo") == 0
    assert probe.out.splitlines()[0] == (
        "DIVERGED: Tensor.__mul__.0.forward was called with a different argument (other, input.1: 0.0625 against 0.25)"
        " and returns values that differ, at train.py, line 26, in forward"
    )
    assert " and returns values that differ (output.0: off by " in probe.out
    assert "train.py, line 26, in forward, scores = " in probe.out
    assert "recorded just now" in probe.out
    assert (tmp_path / "demo/target/step0/rank/dump_tensor_data/tensors.safetensors").is_file()


def test_the_demo_without_torch_uses_the_runs_that_ship(
    probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    assert probe("demo", tmp_path / "demo") == 0
    assert "torch is not installed" in probe.err
    assert probe.out.startswith("DIVERGED: Tensor.__mul__.0.forward was called with a different argument")
    first = probe.out.splitlines()
    first = first[first.index(next(line for line in first if line.startswith("  1. "))) :]
    assert "Tensor.__mul__.0.forward" in first[0] and "  2. " not in probe.out
    assert "(other, input.1: 0.0625 against 0.25)" in first[1]
    assert "in Module.block.attention.Attention.forward.0" in first[2]
    assert "train.py, line 30" in first[3]
    packed = ROOT / "plugins/pytorch/probe_pytorch/demo_data/runs.zip"
    assert packed.stat().st_size < 1_000_000


def test_same_input_same_bytes(probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_edge")
    results = []
    for out in ("a", "b"):
        options = ("-o", tmp_path / out, "-hl", "--format", "xlsx,csv,jsonl")
        assert probe("compare", base / "npu_dump", base / "bench_dump", *options) == 0
        results.append({path.suffix: path.read_bytes() for path in (tmp_path / out).iterdir()})
    assert results[0] == results[1]


def test_two_at_once_into_one_directory(runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_edge")
    command = [sys.executable, "-m", "probe_core.cli", "compare", str(base / "npu_dump"),
               str(base / "bench_dump"), "-o", str(tmp_path), "--format", "csv"]  # fmt: skip
    both = [PreloadedPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    for path in tmp_path.glob("*.csv"):
        assert path.read_text().count("\n") > 150
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_pipe_stays_quiet_and_may_close(runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_edge")
    command = f"{sys.executable} -m probe_core.cli compare {base}/npu_dump {base}/bench_dump -o {tmp_path}"
    done = subprocess.run(f"{command} | head -1", shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("DIVERGED: ") and done.stdout.count("\n") == 1 and done.stderr == ""


def test_interrupted_rows_are_kept(tmp_path: Path) -> None:
    """Ctrl-C while rows are written: the files hold what was done and say so, exit 130."""
    data = {f"Torch.a.{n}.forward": forward(tensor(), scalar(n)) for n in range(30_000)}
    path = write_run(tmp_path / "run", data)
    process = PreloadedPopen(
        [sys.executable, "-m", "probe_core.cli", "compare", str(path), str(path), "-o", str(tmp_path / "o"),
         "--format", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=let_interrupts_in)  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        parts = list((tmp_path / "o").glob(".*.part"))
        if parts and parts[0].stat().st_size > 100_000:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (result,) = (tmp_path / "o").glob("compare_result*")
    (answer,) = (path for path in (tmp_path / "o").iterdir() if path != result)
    assert result.name.endswith("_interrupted.csv") and re.fullmatch(r"answer_\d{14}\.json", answer.name)
    assert json.loads(answer.read_text())["verdict"] == "CANNOT TELL", "the rows behind were not compared"
    assert "interrupted after" in err
    lines = result.read_text().splitlines()
    assert 100 < len(lines) < 60_001
    assert lines[-1].count(",") == lines[0].count(",")


OWN_FRAMEWORK = {"probe_pytorch": {"torch"}, "probe_mindspore": {"mindspore", "torch"}}
"""The reference of the mint pre-check is torch."""


PLUGINS = ("probe_pytorch", "probe_mindspore", "probe_metrics")
KITS = ("probe_ranks", "probe_reporters", "probe_recording", "probe_matching", "probe_precheck", "probe_diagnosis")
LOWER_KITS = {"probe_ranks", "probe_reporters"}
"""Kits that the other kits import."""


def folder_of(package: str) -> Path:
    home = ROOT if package == "probe_core" else ROOT / "plugins" / package.removeprefix("probe_")
    return home / package


def test_the_core_knows_no_plugin_and_plugins_not_each_other() -> None:
    for package in ("probe_core", *PLUGINS):
        kits = KITS if package in PLUGINS else ()
        for file in folder_of(package).rglob("*.py"):
            found = set(re.findall(r"^\s*(?:from|import) (probe_\w+|torch|mindspore)", file.read_text(), re.M))
            assert found <= {"probe_core", package, *kits, *OWN_FRAMEWORK.get(package, ())}, file


@pytest.mark.parametrize("kit", KITS)
def test_a_kit_knows_only_the_core_and_lower_kits(kit: str) -> None:
    for file in folder_of(kit).rglob("*.py"):
        imports = re.findall(r"^\s*(?:from|import) ([\w.]+)", file.read_text(), re.M)
        ours = {name.split(".")[0] for name in imports if name.startswith("probe_")}
        lower = set() if kit in LOWER_KITS else LOWER_KITS
        assert ours <= {"probe_core", kit, *lower}, file
        if kit == "probe_recording" and file.name != "installed.py":  # which only tasks of plugins load
            assert not {"click", "pluggy", "probe_core.cli", "probe_core.plugins.manager"} & {*imports}, file


def test_a_kit_is_imported_in_pieces() -> None:
    """Processes that run calls load neither the command line nor the manager, nor the supervisor."""
    code = (
        "import sys, probe_precheck.api; "
        "before = {one for one in sys.modules if one.startswith('probe_') and '__editable__' not in one}; "
        "assert before <= {'probe_precheck', 'probe_precheck.api', 'probe_core', 'probe_core.exports'}, before; "
        "import types; "
        "loaded = [getattr(probe_precheck.api, name) for name in probe_precheck.api.__all__]; "
        "assert not [one for one in loaded if isinstance(one, types.ModuleType)]; "
        "print(*[one for one in ('click', 'probe_core.plugins.manager', 'probe_precheck.supervisor', "
        "'probe_core.cli', 'torch') if one in sys.modules])"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


# -- nobody reads what is printed ------------------------------------------------------------------


def unread(*arguments: str | Path, stderr: bool = False) -> tuple[int, str]:
    """The exit code of ``probe … | head -0``, with a reader that has gone before anything is printed.

    Also what was printed on stderr; with ``stderr`` nobody reads that either.
    """
    command = [sys.executable, "-m", "probe_core.cli", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    errors = writing if stderr else subprocess.PIPE
    try:
        done = preloaded.run(command, stdout=writing, stderr=errors, text=True, timeout=120, env=environment)
    finally:
        os.close(writing)
    return done.returncode, done.stderr or ""


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    """Runs of two ranks, of which the second differs."""
    for rank in (0, 1):
        for side in ("target", "golden"):
            value = 9.0 if rank and side == "target" else 1.0
            record = forward(tensor(), output=[tensor(value=value)])
            write_run(tmp_path / side / f"rank{rank}", {"Torch.exp.0.forward": record})
    return tmp_path / "target", tmp_path / "golden"


@pytest.mark.parametrize("stderr", [False, True])
@pytest.mark.parametrize(
    ("options", "code"),
    [([], 0), (["--fail-on", "error"], 1), (["--print-plan"], 0), (["--metric", "nope"], 2)],
)
def test_a_comparison_that_nobody_reads(
    options: list[str], code: int, stderr: bool, two_runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """It goes on and writes its files, and its exit code is what it found."""
    found, said = unread("compare", *two_runs, "-o", tmp_path / "o", *options, stderr=stderr)
    assert found == code
    assert "Traceback" not in said and "BrokenPipe" not in said
    if not options:
        assert {path.name.split("_2")[0] for path in (tmp_path / "o").iterdir()} == {
            "answer", "compare_result_rank0", "compare_result_rank1", "advisor_rank0", "advisor_rank1",
            "compare_summary",
        }  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["--version"], ["plugins"]])
def test_a_text_that_nobody_reads(arguments: list[str]) -> None:
    assert unread(*arguments) == (0, "")


def test_a_script_whose_last_words_nobody_reads(tmp_path: Path) -> None:
    """Printed text is in Python's buffer until the process ends."""
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint('done')\nsys.exit(3)\n")
    code, said = unread("run", "-o", tmp_path / "run", script)
    assert code == 3 and "BrokenPipe" not in said


def test_a_broken_pipe_of_another_sort_is_a_defect(probe: Any, good_run: Path, monkeypatch: Any) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("probe_ranks.command.compare.run_plan", broken)
    assert probe("compare", good_run, good_run) == 70
    assert "This is a defect of probe." in probe.err


@pytest.fixture
def good_run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "good", {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])})
