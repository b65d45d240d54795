from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_workflow import recording
from probe_workflow.reports.ci_systems import ROOT_VARIABLES
from support.programs.preloaded import PreloadedPopen

SCRIPT = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16, eps=1e-5), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
"""
COMMAND = ("--", sys.executable, "train.py")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script, outside of any CI system; scripts run in preloaded processes."""
    for name in ("GITHUB_ACTIONS", "TF_BUILD", *ROOT_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(recording.subprocess, "Popen", PreloadedPopen)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the script."""
    directory = tmp_path_factory.mktemp("golden")
    (directory / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", "golden", "--step", "0,1", "train.py"]
    with PreloadedPopen(command, cwd=directory) as process:
        assert process.wait() == 0
    return directory / "golden"


def change(here: Path, old: str, new: str) -> None:
    """Replace a text of the script."""
    assert SCRIPT.count(old) == 1
    (here / "train.py").write_text(SCRIPT.replace(old, new))


def test_the_same_script_agrees_and_leaves_no_files(here: Path, golden: Path, probe: Any) -> None:
    assert probe("check", golden, *COMMAND) == 0, probe.err
    assert probe.out.startswith("AGREE: ") and "wrote" not in probe.out
    assert [path.name for path in here.iterdir()] == ["train.py"]


def test_a_changed_script_diverges_with_the_text_and_data_of_compare(here: Path, golden: Path, probe: Any) -> None:
    change(here, "eps=1e-5", "eps=1e-3")
    assert probe("check", golden, "-o", "out", *COMMAND) == 1, probe.err
    verdict = probe.out.splitlines()[0]
    assert verdict.startswith(
        "DIVERGED: in step0, Functional.layer_norm.0.forward was called with a different argument (eps"
    )
    assert list(Path("out").glob("compare_summary_*.html")) and list(Path("out/step0").glob("*.xlsx"))
    assert probe("compare", "out/recording", golden, "-o", "again", "--exit-codes=bisect") == 1
    assert probe.out.splitlines()[0] == verdict
    assert probe("compare", "out/recording", golden, "-o", "again") == 0  # its own code
    assert probe("check", golden, "--json", "--annotations", "github", *COMMAND) == 1
    found = json.loads(probe.out)
    assert found["answer"]["sentence"] == verdict and found["exit_code"] == 1 and found["result"] == "diverged"
    assert (found["annotations"][0]["file"], found["annotations"][0]["line"]) == ("train.py", 8)
    assert "::error file=train.py,line=8,title=probe check::DIVERGED" in probe.err


def test_reports_are_written(here: Path, golden: Path, probe: Any) -> None:
    change(here, "lr=0.1", "lr=0.2")
    files = {"--summary": "a/check.md", "--junit": "check.xml", "--code-quality": "quality.json"}
    assert probe("check", golden, *(part for pair in files.items() for part in pair), *COMMAND) == 1, probe.err
    assert "### probe check: DIVERGED" in Path("a/check.md").read_text()
    assert '<failure message="DIVERGED' in Path("check.xml").read_text()
    (issue, *_) = json.loads(Path("quality.json").read_text())
    assert issue["location"]["path"] == "train.py"


@pytest.mark.parametrize("line", ["import not_there", "raise SystemExit(2)", "(", "import os; os._exit(5)"])
def test_a_script_that_fails_is_skipped(line: str, here: Path, golden: Path, probe: Any) -> None:
    (here / "train.py").write_text(f"{SCRIPT}\n{line}\n")
    assert probe("check", golden, *COMMAND) == 125
    assert "The script failed" in probe.err


def test_fewer_steps_than_the_golden_are_no_agreement(here: Path, golden: Path, probe: Any) -> None:
    change(here, "range(2)", "range(1)")
    assert probe("check", golden, "--json", *COMMAND) == 125
    found = json.loads(probe.out)
    assert found["script"]["missing_steps"] == [1] and found["result"] == "undecided"
    assert "did not record step 1 of the golden" in probe.err


def test_a_script_that_trains_nothing_stops_a_bisection(here: Path, golden: Path, probe: Any) -> None:
    (here / "train.py").write_text("print(1)\n")
    assert probe("check", golden, *COMMAND) == 203
    assert "its recording is incomplete" in probe.err


@pytest.mark.parametrize("arguments", [
    ("no-golden", *COMMAND), ("golden", "--wrong", *COMMAND), ("golden",), (), ("golden", "--", "bash", "run.sh"),
    ("golden", "--annotations", "other", *COMMAND),
    ("golden/step0", *COMMAND), ("golden", "--assert-differs", "golden", *COMMAND),
    ("golden", "--summary", "train.py/check.md", *COMMAND),
])  # fmt: skip
def test_mistakes_stop_a_bisection(arguments: tuple[str, ...], here: Path, golden: Path, probe: Any) -> None:
    (here / "golden").symlink_to(golden)
    assert probe("check", *arguments) == 202, probe.err
    assert "error: " in probe.err and "Traceback" not in probe.err


def test_a_missing_script_stops_a_bisection(here: Path, golden: Path, probe: Any) -> None:
    assert probe("check", golden, "--", sys.executable, "missing.py") == 202


def test_a_defect_stops_a_bisection(here: Path, golden: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("probe_workflow.check_command.compare_runs", fail)
    assert probe("check", golden, *COMMAND) == 207
    assert "This is a defect of probe." in probe.err


def test_an_interrupt_exits_with_130(here: Path, golden: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("probe_workflow.check_command.record_script", interrupt)
    assert probe("check", golden, *COMMAND) == 130


def test_a_bad_run_that_diverges_is_accepted(here: Path, golden: Path, probe: Any) -> None:
    change(here, "eps=1e-5", "eps=1e-3")
    assert probe("check", golden, "-o", "bad", *COMMAND) == 1
    (here / "train.py").write_text(SCRIPT)
    assert probe("check", golden, "--assert-differs", "bad/recording", *COMMAND) == 0, probe.err
    assert probe.out.startswith("AGREE")


def test_the_settings_of_the_golden_are_repeated(here: Path, probe: Any) -> None:
    config = {"task": "statistics", "level": "L1", "statistics": {"list": ["linear"], "summary_mode": "md5"}}
    (here / "config.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "probe_core.cli",
        "run",
        "--config",
        "config.json",
        "--step",
        "1",
        "-o",
        "one",
        "train.py",
    ]
    with PreloadedPopen(command) as process:
        assert process.wait() == 0
    assert probe("check", "one", "-o", "out", *COMMAND) == 0, probe.err
    records = json.loads(Path("out/recording/step1/rank/dump.json").read_text())
    assert records["level"] == "L1" and all("linear" in name for name in records["data"])
    assert "md5" in str(records["data"]) and not Path("out/recording/step0").exists()


@pytest.mark.parametrize("arguments, code", [
    (("golden", "golden"), 0), (("golden", "missing"), 202), (("golden", "golden", "--wrong"), 202), ((), 202),
])  # fmt: skip
def test_compare_has_the_codes_of_bisect_only_if_asked(
    arguments: tuple[str, ...], code: int, here: Path, golden: Path, probe: Any
) -> None:
    (here / "golden").symlink_to(golden)
    assert probe("compare", *arguments, "-o", "out", "--exit-codes=bisect") == code, probe.err
    assert probe("compare", *arguments, "-o", "out") == (0 if code == 0 else 2)
    assert probe("compare", *arguments, "-o", "out", "--exit_codes", "other") != 0
