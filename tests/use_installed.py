"""Use probe as people do who installed it: ``make.py`` runs this where our wheels are, outside the checkout.

The demonstration, comparing and checking its runs, and the mint pre-check where MindSpore is installed. Ends
with a message and exit code 1 where something is not as it should be.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
KITS = ("probe_ranks", "probe_reporters", "probe_recording", "probe_matching", "probe_precheck", "probe_diagnosis")
PLUGINS = (
    "probe_pytorch", "probe_mindspore", "probe_metrics", "probe_page", "probe_explain",
    "probe_online", "probe_watch", "probe_check", "probe_workflow", "probe_legacy",
)  # fmt: skip
PACKAGES = ("probe_core", *KITS, *PLUGINS)
COMPILED = (
    "probe_metrics._kernel",
    "probe_reporters._lines",
    "probe_pytorch._tally",
    "probe_recording._records",
    "probe_pytorch._frames",
    "probe_pytorch._ptfile",
)
TRAINING = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
"""
GOLDEN_TEST = """
import torch


def test_model(probe_golden):
    probe_golden.check(lambda x: torch.relu(x) * 1.0, torch.linspace(-1, 1, 8))
"""
COMPILERS = ("c++", "g++", "clang++")


def main() -> None:
    """Go through it all; the working directory takes the files."""
    installed()
    print(probe("--version").strip(), "of wheels, in", sys.prefix)
    assert "compare" in probe("--help")
    assert_start_file_is_read()
    plugins = json.loads(probe("plugins", "--json"))
    names = {package.removeprefix("probe_") for package in PACKAGES} - {"recording"}
    assert names <= {one["name"] for one in plugins}
    broken = [one["problem"] for one in plugins if one["status"] != "ok"]
    assert not broken, broken
    has_torch = importlib.util.find_spec("torch") is not None
    assert ("recorded just now" if has_torch else "recorded beforehand") in probe("demo", "demo")
    target, golden = Path("demo/target/step0"), Path("demo/golden/step0")
    probe("compare", target, golden, "-o", "compared", "--format", "xlsx,csv,jsonl,html", "-hl")
    assert {path.suffix for path in Path("compared").iterdir()} >= {
        ".xlsx",
        ".csv",
        ".jsonl",
        ".html",
        ".txt",
    }
    assert probe("show", "--print", "compared").strip().endswith(".html")
    if has_torch:
        check("pytorch", golden)
        check_workflow()
        if importlib.util.find_spec("pytest") is not None and importlib.util.find_spec("pytest_probe") is not None:
            check_golden_test()
    if importlib.util.find_spec("mindspore") is not None:
        zipfile.ZipFile(DATA / "precheck-mindspore.zip").extractall("mindspore-runs")
        check("mindspore", Path("mindspore-runs/ms_mix_tensor"))


def installed() -> None:
    """Each package comes from this environment, with its compiled part where there is a compiler."""
    site = Path(sysconfig.get_path("purelib")).resolve()
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        assert found is not None and found.origin is not None, package
        assert Path(found.origin).resolve().is_relative_to(site), found.origin
    if any(map(shutil.which, COMPILERS)):
        missing = [name for name in COMPILED if importlib.util.find_spec(name) is None]
        assert not missing, f"not compiled: {missing}"


def assert_start_file_is_read() -> None:
    """The interpreter of this environment heeds PROBE_RUN, and imports nothing of probe without it."""
    listing = "import sys; print('probe_pytorch.process_start' in sys.modules, 'probe_core' in sys.modules)"
    for value, expected in (("config.json", "True True\n"), ("", "False False\n")):
        environment = {**os.environ, "PROBE_RUN": value}
        command = [sys.executable, "-c", listing]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == expected and not done.stderr, (value, done)


def check(framework: str, run: Path) -> None:
    """The pre-check of a run, most calls of which pass."""
    out = f"checked-{framework}"
    print(probe("run_ut", "--framework", framework, "-api_info", run, "-o", out, "-d", "cpu", "-save_error_data"))
    (result,) = Path(out).glob("accuracy_checking_result_*.csv")
    with result.open(encoding="utf-8-sig", newline="") as file:
        forward = [row[1] for row in list(csv.reader(file))[1:]]
    assert forward.count("pass") > len(forward) / 2, forward


def check_workflow() -> None:
    """A script is checked against its golden, before and after a change of its numbers."""
    script = Path("train.py")
    script.write_text(TRAINING, encoding="utf-8")
    probe("run", "-o", "script-golden", script)
    check = ("check", "script-golden", "--", sys.executable, script)
    assert "AGREE" in probe(*check)
    script.write_text(TRAINING.replace("lr=0.1", "lr=0.2"), encoding="utf-8")
    assert "train.py" in probe(*check, code=1)


def check_golden_test() -> None:
    """A test with ``probe_golden`` passes with its golden file, and fails after a change of its numbers."""
    test = Path("test_model.py")
    test.write_text(GOLDEN_TEST, encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    run(*command, "--probe-update")
    run(*command)
    test.write_text(GOLDEN_TEST.replace("* 1.0", "* 1.5"), encoding="utf-8")
    assert "DIVERGED" in run(*command, code=1)


def probe(*arguments: str | Path, code: int = 0) -> str:
    """Return the output of a command of probe, which must end with ``code``."""
    return run(Path(sysconfig.get_path("scripts")) / "probe", *arguments, code=code)


def run(*command: str | Path, code: int = 0) -> str:
    """Return the output of a command, which must end with ``code``."""
    words = [*map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", errors="replace")
    if done.returncode != code:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
