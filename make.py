"""The verbs of this repository: ``python3 make.py demo | test | lint | bench | clean``.

Needs Python (3.10 to 3.13) with pip and venv, nothing else. Everything is installed into ``.venv``
here: first the third-party packages, then our distributions from their own directories, with
no index to take a package of their names from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
PIP = (str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
OURS = [".", *(f"plugins/{name}" for name in ("pytorch", "mindspore", "metrics", "reporters"))]
OPTIONAL = ["plugins/dask", "tests/sample_plugin"]
RUN_TIME = (
    "pluggy", "click", "numpy", "PyYAML", "ml_dtypes", "XlsxWriter", "openpyxl", "xxhash", "setuptools",
)  # fmt: skip


def pinned(names: tuple[str, ...] | None = None) -> list[str]:
    """The requirements of the development file, or those of ``names`` among them."""
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [line for line in wanted if names is None or line.split("==")[0] in names]


def run(*command: str | Path) -> None:
    """Run a command here; what fails ends the verb with its code."""
    code = subprocess.run([str(part) for part in command], cwd=ROOT).returncode
    if code:
        sys.exit(code)


def install(requirements: list[str], local: list[str]) -> None:
    """Set up ``.venv`` with third-party ``requirements`` and our ``local`` directories."""
    if not PYTHON.exists():
        venv.create(HOME, with_pip=True)
    run(*PIP, *requirements)
    editable = [part for directory in local for part in ("-e", f"./{directory}")]
    run(*PIP, "--no-index", "--no-deps", "--no-build-isolation", *editable)


def demo() -> None:
    """Set up, then record two small training runs, one with a fault, and let probe find it."""
    install(pinned(RUN_TIME), OURS)
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("Installing torch, which the recording needs; without it the demo compares recorded runs.")
        subprocess.run([*PIP, *pinned(("torch",))], cwd=ROOT)
    run(BIN / "probe", "demo")


def test() -> None:
    """Set up, then lint, check types, and run all tests."""
    install(pinned(), [*OURS, *OPTIONAL])
    lint()
    run(PYTHON, "-m", "pytest", "-n", "auto", "--dist", "loadfile", *sys.argv[2:])


def lint() -> None:
    """Check style and types (after ``test`` has set up)."""
    run(PYTHON, "-m", "ruff", "check", ".")
    run(PYTHON, "-m", "ruff", "format", "--check", ".")
    run(PYTHON, "-m", "mypy")


def bench() -> None:
    """Run the benchmarks, or one of them: ``kernel``, ``compare``, ``ranks``, ``check``, ``record``."""
    scripts = {
        "kernel": "kernel.py", "compare": "compare_runs.py", "ranks": "many_ranks.py",
        "check": "check_calls.py", "record": "record_steps.py",
    }  # fmt: skip
    chosen = sys.argv[2:3] if sys.argv[2:3] and sys.argv[2] in scripts else list(scripts)
    for name in chosen:
        arguments = (argument for argument in sys.argv[2:] if argument not in scripts)
        run(PYTHON, ROOT / "benchmarks" / scripts[name], *arguments)


def clean() -> None:
    """Remove what the verbs made."""
    for name in (".venv", "probe-demo", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"):
        shutil.rmtree(ROOT / name, ignore_errors=True)


VERBS = {verb.__name__: verb for verb in (demo, test, lint, bench, clean)}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        print(__doc__)
        for name, verb in VERBS.items():
            print(f"  {name:6} {verb.__doc__}")
        sys.exit(2)
    VERBS[sys.argv[1]]()
