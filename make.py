"""The verbs of this repository, such as ``python3 make.py test``; alone, it lists them.

Needs Python 3.10 or later with pip and venv, nothing else. Everything is installed into ``.venv``
here (MindSpore into ``.venv-mindspore``, other versions of torch into ``.venv-torch-VERSION``): first the
third-party packages, then the distributions of this repository from their directories or as wheels, without a
package index, because other people may own packages of the same names.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
MINDSPORE_HOME = ROOT / ".venv-mindspore"
DIST = ROOT / "dist"
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
BIN = HOME / SCRIPTS
PYTHON = BIN / "python"
OLDEST_PYTHON = (3, 10)
MINDSPORE_PYTHONS = ((3, 10), (3, 11))
LOWEST_PYTHONS = ((3, 10), (3, 11))
KITS = ("ranks", "reporters", "recording", "matching", "precheck", "diagnosis")
PLUGINS = (
    "pytorch",
    "mindspore",
    "metrics",
    "page",
    "explain",
    "online",
    "watch",
    "check",
    "workflow",
    "legacy",
)
DISTRIBUTIONS = [".", *(f"plugins/{name}" for name in (*KITS, *PLUGINS))]
ALL = "--all"
DASK = "plugins/dask"
PYTEST = "plugins/pytest"
OPTIONAL = [DASK, PYTEST, "tests/sample_plugin"]
WHOLE = "plugins/all"
"""The distribution without code that installs all others but those for dask and pytest."""
RUN_TIME = (
    "pluggy", "click", "numpy", "PyYAML", "ml_dtypes", "XlsxWriter", "openpyxl", "xxhash", "Jinja2",
    "setuptools",
)  # fmt: skip
TORCH_PARTS = ("tests/plugins/pytorch", "tests/plugins/explain")
"""The tests that ``make.py torch`` runs: the recorder, ``compat.py``, the pre-check and the replay."""
TESTS_WITHOUT = (
    "numpy", "ml_dtypes", "torch", "transformers", "playwright", "mypy", "ruff", "import-linter", "uv",
    "Pillow", "dask", "distributed", "fsspec", "universal_pathlib", "prompt_toolkit", "pandas", "pyarrow",
)  # fmt: skip
"""The packages of requirements-dev.txt that ``make.py torch`` does not install with it."""
FIRST_TORCH_FOR_NUMPY_2 = (2, 3)


def pinned(names: tuple[str, ...] | None = None, file: str = "requirements-dev.txt") -> list[str]:
    """The requirements of the development file, or those of ``names`` among them."""
    lines = (ROOT / file).read_text("utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [line for line in wanted if names is None or line.split("==")[0] in names]


def run(*command: str | Path, cwd: str | Path = ROOT) -> None:
    """Run a command here, or in ``cwd``; what fails ends the verb with its code."""
    if command[0] == PYTHON and not PYTHON.exists():
        print(f"{HOME} has no Python yet. Run python3 make.py test first, which sets it up.", file=sys.stderr)
        sys.exit(2)
    code = subprocess.run([str(part) for part in command], cwd=cwd).returncode
    if code:
        sys.exit(code)


def quietly(*command: str | Path, cwd: Path) -> None:
    """Run a command whose output is only of interest if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def pip_install(home: Path, *arguments: str | Path) -> int:
    """Install into the environment ``home``, print a line for each step of pip, and return its exit code.

    Lines about packages that are already installed are omitted.
    """
    pip = (home / SCRIPTS / "python", "-u", "-m", "pip", "install", "--disable-pip-version-check")
    command = [str(part) for part in (*pip, "--progress-bar", "off", *arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith(("Requirement already satisfied", "Looking in", "Processing ", "Ignoring ")):
                print("  pip:", line.strip()[:200], flush=True)
    return process.returncode


def environment(home: Path, *requirements: str | Path) -> None:
    """Set up the environment ``home`` with third-party ``requirements``."""
    if not (home / SCRIPTS / ("pip.exe" if os.name == "nt" else "pip")).exists():  # written last
        if importlib.util.find_spec("ensurepip") is None:
            sys.exit(
                f"{sys.executable} has no module ensurepip, so no environment can be created for probe. "
                "On Debian and Ubuntu, install it: sudo apt-get install python3-venv"
            )
        print(f"Creating the environment {home}", flush=True)
        venv.create(home, with_pip=True)
    print(f"Installing packages into {home}", flush=True)
    if code := pip_install(home, *requirements):
        sys.exit(code)


def install(requirements: list[str], local: list[str]) -> None:
    """Set up ``.venv`` with third-party ``requirements`` and our ``local`` directories, editable."""
    environment(HOME, *requirements)
    editable = [part for directory in local for part in ("-e", f"./{directory}")]
    print("Installing the distributions of this repository", flush=True)
    if code := pip_install(HOME, "--no-index", "--no-deps", "--no-build-isolation", *editable):
        sys.exit(code)


@cache
def build() -> list[Path]:
    """Build the source distribution of each of our distributions, and its wheel from that; return the wheels.

    From a copy, for a build takes up what an earlier one left in its directory.
    """
    environment(HOME, *pinned(("setuptools",)))
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    made = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "*.so", "*.pyd")
    sdist = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    with tempfile.TemporaryDirectory(prefix="probe-build-") as there:
        copy = shutil.copytree(ROOT, Path(there) / "probe", ignore=made)
        for directory in (*DISTRIBUTIONS, DASK, PYTEST, WHOLE):
            quietly(PYTHON, "-c", sdist, DIST, cwd=copy / directory)
        offline = ("--no-index", "--no-deps", "--no-build-isolation")
        run(
            PYTHON,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            *offline,
            "-w",
            DIST,
            *sorted(DIST.glob("*.tar.gz")),
            cwd=there,
        )
    return sorted(DIST.glob("*.whl"))


def demo() -> None:
    """Set up, then record two small training runs, one with a fault, and let probe find it."""
    install(pinned(RUN_TIME), DISTRIBUTIONS)
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("Installing torch, which the recording needs; without it the demo compares recorded runs.")
        pip_install(HOME, *pinned(("torch",)))
    run(BIN / "probe", "demo")


def test() -> None:
    """Set up, lint, check types, run all tests; ``--all`` adds slow ones and the lowest versions."""
    install(pinned(), [*DISTRIBUTIONS, *OPTIONAL])
    lint()
    pytest(PYTHON)
    if chosen_tests():
        return
    wheels()
    if ALL in sys.argv[2:]:
        lowest()
    if sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info[:2] in MINDSPORE_PYTHONS:
        mindspore()
    else:
        print("MindSpore has no package for this machine: its tests were skipped.")


def check() -> None:
    """Check style and types and run the quick tests, in under a minute (after ``test`` has set up)."""
    lint()
    pytest(PYTHON, "--quick", ROOT / "tests" / "core", ROOT / "tests" / "plugins")


def wheels() -> None:
    """Build our wheels, install them in an empty environment elsewhere, and use them there."""
    with tempfile.TemporaryDirectory(prefix="probe-wheels-") as there:
        home = Path(there) / "environment"
        # the third-party packages that the wheels ask for; pip looks for none of ours, for all are given
        environment(home, "-c", "requirements-dev.txt", *map(str, build()), "torch")
        use_installed(home, there)


def dist() -> None:
    """Build source distributions and wheels into dist/, check them with twine, and use the wheels."""
    files = [*build(), *sorted(DIST.glob("*.tar.gz"))]
    environment(HOME, *pinned(file="requirements-release.txt"))
    run(PYTHON, "-m", "twine", "check", "--strict", *files)
    wheels()
    for file in sorted(DIST.iterdir()):
        print(file.relative_to(ROOT))


def lowest() -> None:
    """Install our wheels with the lowest versions of what they need, without torch, and use them."""
    if sys.version_info[:2] not in LOWEST_PYTHONS:
        print("The lowest versions have no packages for this Python: they were not tried.")
        return
    bounds: dict[str, str] = {}
    for directory in DISTRIBUTIONS:
        text = (ROOT / directory / "pyproject.toml").read_text("utf-8")
        needed = re.search(r"^dependencies = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        bounds |= dict(re.findall(r'"(\w+)>=([\d.]+)"', needed[1] if needed else ""))
    built = [wheel for wheel in build() if not wheel.name.startswith(("probe_dask", "pytest_probe"))]
    with tempfile.TemporaryDirectory(prefix="probe-lowest-") as there:
        home = Path(there) / "environment"
        environment(home, *(f"{name}=={version}" for name, version in bounds.items()), *map(str, built))
        use_installed(home, there)


def release() -> None:
    """Build and check the distributions, and tag the commit with their version; pushing is left to you."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "probe_core" / "__init__.py").read_text())[1]  # type: ignore[index]
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout:
        sys.exit("There are changes that are not committed. Commit them, then release.")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        sys.exit(f'CHANGELOG.md has no section "## [{version}] - YYYY-MM-DD". Add it, then release.')
    dist()
    run("git", "tag", "-a", f"v{version}", "-m", f"probe {version}")
    print(f"Tagged v{version}. Publish it: git push origin v{version} (the workflow release.yml uploads it).")


def mindspore() -> None:
    """Set up an environment with MindSpore (0.8 GB) and our wheels, and run the tests that need it there."""
    environment(MINDSPORE_HOME, *pinned(file="requirements-mindspore.txt"))
    built = [wheel for wheel in build() if not wheel.name.startswith("probe_dask")]
    if code := pip_install(MINDSPORE_HOME, "--no-index", "--no-deps", "--force-reinstall", *built):
        sys.exit(code)
    with tempfile.TemporaryDirectory(prefix="probe-mindspore-") as there:  # nothing there hides the wheels
        if not chosen_tests():
            use_installed(MINDSPORE_HOME, there)
        tests = [] if chosen_tests() else [ROOT / "tests" / "plugins" / "mindspore" / "live"]
        # MindSpore 2.10 now and then raises an error of its own (an index within its gradients that is out of
        # range); a test that failed by one is run again, one that failed by anything else is not
        again = ("--reruns", "2", "--only-rerun", "Framework Unexpected Exception Raised")
        settings = ("-c", ROOT / "pyproject.toml", *again)
        pytest(MINDSPORE_HOME / SCRIPTS / "python", *settings, *tests, cwd=there)


def torch() -> None:
    """Test the recorder and the replay with another torch (6 GB): ``torch 2.6.0 [tests]``."""
    version = sys.argv.pop(2) if sys.argv[2:] else ""
    if not re.fullmatch(r"2\.\d+(\.\d+)?", version):
        sys.exit("Name a version of torch 2, and tests if you want only some: python3 make.py torch 2.6.0")
    home = ROOT / f".venv-torch-{version}"
    names = tuple({line.split("==")[0] for line in pinned()} - set(TESTS_WITHOUT))
    numpy = ("numpy", "ml_dtypes")
    is_old = tuple(int(part) for part in version.split(".")[:2]) < FIRST_TORCH_FOR_NUMPY_2
    arrays = pinned(numpy, "requirements-mindspore.txt") if is_old else pinned(numpy)
    environment(home, f"torch=={version}", *arrays, *pinned(names))
    built = [wheel for wheel in build() if not wheel.name.startswith("probe_dask")]
    if code := pip_install(home, "--no-index", "--no-deps", "--force-reinstall", *built):
        sys.exit(code)
    tests = [] if chosen_tests() else [ROOT / part for part in TORCH_PARTS]
    with tempfile.TemporaryDirectory(prefix="probe-torch-") as there:  # nothing there hides the wheels
        pytest(home / SCRIPTS / "python", "-c", ROOT / "pyproject.toml", *tests, cwd=there)


def use_installed(home: Path, there: str) -> None:
    """Use the wheels that are installed in ``home``, from the directory ``there``."""
    run(home / SCRIPTS / "python", ROOT / "tests" / "use_installed.py", cwd=there)


def chosen_tests() -> list[str]:
    """Return the arguments of the command line that are meant for pytest, paths as seen from anywhere."""
    given = [argument for argument in sys.argv[2:] if argument != ALL]
    return [str(ROOT / one) if "/" in one and (ROOT / one.split("::")[0]).exists() else one for one in given]


def pytest(python: Path, *more: str | Path, cwd: str | Path = ROOT) -> None:
    """Run pytest on all processors; with ``--all``, the tests marked slow as well.

    One worker more than processors, for many tests wait for processes of their own. The reasons of skipped
    tests are printed at the end.
    """
    slow = ["-rs", "-m", "not registry"] if ALL in sys.argv[2:] else ["-rs"]
    workers = str((os.cpu_count() or 1) + 1)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process of the tests compiles the modules anew
    run(python, "-m", "pytest", "-n", workers, "--dist", "worksteal", *slow, *chosen_tests(), *more, cwd=cwd)


def lint() -> None:
    """Check style and types (after ``test`` has set up); types by the numpy of Python 3.11 and later."""
    run(PYTHON, "-m", "ruff", "check", ".")
    run(PYTHON, "-m", "ruff", "format", "--check", ".")
    if sys.version_info >= (3, 11):
        run(PYTHON, "-m", "mypy")


def bench() -> None:
    """Run all benchmarks or one.

    Names: ``kernel compare ranks check record online faults page older pairs wild conditions
    checkpoints bisection``.
    """
    scripts = {
        "kernel": "kernel.py", "compare": "compare_runs.py", "ranks": "many_ranks.py",
        "check": "check_calls.py", "record": "record_steps.py", "online": "online.py", "faults": "faults",
        "page": "page.py", "older": "older_dumps.py", "pairs": "pairs.py",
        "wild": "wild", "conditions": "conditions", "checkpoints": "checkpoints.py",
        "bisection": "bisection",
    }  # fmt: skip
    is_one = sys.argv[2:3] and sys.argv[2] in scripts
    arguments = sys.argv[3 if is_one else 2 :]
    for name in sys.argv[2:3] if is_one else scripts:
        run(PYTHON, ROOT / "benchmarks" / scripts[name], *arguments)


def docs() -> None:
    """Build the site of the pages into site/; a dead link, or a page that the menu lacks, fails."""
    environment(HOME, *pinned(file="requirements-docs.txt"))
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    run(PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet")
    print(f"Open {ROOT / 'site' / 'index.html'}")


def distributions() -> None:
    """Write the list of what each distribution contributes (after ``test`` has set up)."""
    run(PYTHON, ROOT / "docs" / "make_distributions.py")


def clean() -> None:
    """Remove what the verbs made."""
    caches = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
    for name in (".venv", ".venv-mindspore", "dist", "site", "probe-demo", *caches):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    for directory in ROOT.glob(".venv-torch-*"):
        shutil.rmtree(directory, ignore_errors=True)


VERBS = {
    verb.__name__: verb
    for verb in (
        demo,
        check,
        test,
        wheels,
        lowest,
        mindspore,
        torch,
        dist,
        release,
        lint,
        bench,
        docs,
        distributions,
        clean,
    )
}

if __name__ == "__main__":
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"probe needs Python 3.10 or later, and this is {platform.python_version()}.")
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        print(__doc__)
        for name, verb in VERBS.items():
            print(f"  {name:13} {verb.__doc__}")
        sys.exit(2)
    VERBS[sys.argv[1]]()
