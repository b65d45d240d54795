"""Recording of the programs: their repositories, data, checkpoints and runs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from conditions.case import Run, Source
from conditions.planted_secrets import make_hostile
from conditions.repository import git

PROGRAM_FILES = Path(__file__).resolve().parent / "programs"
RECORDER_PACKAGES = ("probe_recording", "probe_pytorch")
MAX_SECONDS = 120
"""Time limit of a program."""
USUAL_VARIABLES = {"OMP_NUM_THREADS": "2"}
CLEARED_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MKL_NUM_THREADS", "MKL_CBWR", "ATEN_CPU_CAPABILITY",
    "NVIDIA_TF32_OVERRIDE", "PYTHONPATH", "PROBE_CONFIG",
)  # fmt: skip


class RecordingError(Exception):
    """A program could not be recorded; the text is the end of its output."""


class NotRunError(Exception):
    """A case cannot be run on this machine; the text states why."""


def recorder_state() -> str:
    """Return a hash of the recorder; runs of another state are recorded again."""
    state = hashlib.sha256()
    for name in RECORDER_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        for file in sorted(Path(spec.origin).parent.rglob("*.py")):
            state.update(file.read_bytes())
    return state.hexdigest()


def write_data(directory: Path) -> None:
    """Write the data sets of the programs."""
    random = np.random.default_rng(0)
    images = random.normal(size=(32, 3, 16, 16)).astype(np.float32)
    np.savez(directory / "images.npz", images=images, labels=random.integers(0, 4, 32))
    for name in ("reviews", "other_reviews"):
        tokens = random.integers(1, 50, (32, 10))
        tokens[0, 0] = 49
        np.savez(directory / f"{name}.npz", tokens=tokens, labels=random.integers(0, 2, 32))
    np.save(directory / "vectors.npy", random.normal(size=(50, 16)).astype(np.float32))
    np.savez(directory / "digits.npz", digits=random.random((64, 64)).astype(np.float32))
    observations = random.normal(size=(32, 5, 6)).astype(np.float32)
    rewards = random.normal(size=(32, 5, 4)).astype(np.float32)
    np.savez(directory / "episodes.npz", observations=observations, rewards=rewards)
    letters = np.array(list("abcdefgh \n"))
    (directory / "corpus.txt").write_text("".join(letters[random.integers(0, len(letters), 2000)]))


class Workspace:
    """Directory with the repositories, the checkpoints and the recorded runs.

    A run is recorded again only if its program, its data, its settings or the recorder have changed.

    Args:
        directory: The directory; it is created if absent.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._files = sorted(PROGRAM_FILES.glob("*.py"))
        code = b"".join(file.read_bytes() for file in [*self._files, Path(__file__)])
        self._sources_state = hashlib.sha256(code).hexdigest()
        self._recorder_state = recorder_state()

    def prepare(self, sources: set[Source], requirements: set[str]) -> None:
        """Create the repositories and install the packages that runs need."""
        for source in sorted(sources, key=lambda one: one.value):
            # The mark of hooks in the hostile repository is valid for one recorder only.
            state = f"{self._recorder_state} {self._sources_state}"
            mark = self.directory / "sources" / f"{source.value}.txt"
            if mark.is_file() and mark.read_text() == state:
                continue
            repository = self.repository(source)
            shutil.rmtree(repository, ignore_errors=True)
            repository.mkdir(parents=True)
            self._create_repository(repository, source)
            mark.write_text(state)
        for requirement in sorted(requirements):
            self._install(requirement)

    def repository(self, source: Source) -> Path:
        """Return the directory of a repository."""
        return self.directory / "sources" / source.value

    def _create_repository(self, repository: Path, source: Source) -> None:
        for file in self._files:
            shutil.copy(file, repository)
        write_data(repository)
        readme = repository / "README.md"
        readme.write_text("# Programs\n")
        git(repository, "init", "--quiet", "--initial-branch=main")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message=Add programs")
        if source is Source.OTHER_COMMIT:
            readme.write_text("# Programs\n\nFive programs.\n")
            git(repository, "commit", "--quiet", "--all", "--message=Describe the programs")
        elif source is Source.MODIFIED:
            for file in repository.glob("*.py"):
                file.write_text(f"{file.read_text()}\n# To do: evaluate.\n")
        elif source is Source.HOSTILE:
            make_hostile(repository)

    def _install(self, requirement: str) -> None:
        target = self._packages(requirement)
        if target.is_dir():
            return
        unfinished = target.with_name(f"{target.name}-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(unfinished),
        ]
        done = subprocess.run([*command, requirement], capture_output=True, text=True)
        if not done.returncode:
            unfinished.rename(target)

    def _packages(self, requirement: str) -> Path:
        return self.directory / "packages" / requirement

    def output(self, run: Run) -> Path:
        """Return the directory of a recorded run."""
        settings = json.dumps(
            [
                run.arguments,
                dict(run.environment),
                run.source.value,
                run.steps,
                run.task,
                run.requirement,
                run.repetition,
            ]
        )
        name = f"{run.program}-{hashlib.sha256(settings.encode()).hexdigest()[:10]}"
        return self.directory / "runs" / name

    def record(self, run: Run) -> str:
        """Record a run unless it is recorded already, and return what its program printed.

        Raises:
            NotRunError: A required package cannot be installed.
            RecordingError: The program failed or took too long.
        """
        output = self.output(run)
        printed, mark = output.with_suffix(".log"), output.with_suffix(".done")
        state = f"{self._recorder_state} {self._sources_state}"
        if not (mark.is_file() and mark.read_text() == state):
            mark.unlink(missing_ok=True)
            shutil.rmtree(output, ignore_errors=True)
            output.parent.mkdir(parents=True, exist_ok=True)
            printed.write_text(self._run(run, output))
            mark.write_text(state)
        return printed.read_text()

    def _run(self, run: Run, output: Path) -> str:
        checkpoint = self.directory / "checkpoints" / f"{run.program}-{run.task}.pt"
        checkpoint.parent.mkdir(exist_ok=True)
        arguments = [argument.replace("{checkpoint}", str(checkpoint)) for argument in run.arguments]
        variables = {name: value for name, value in os.environ.items() if name not in CLEARED_VARIABLES}
        variables |= USUAL_VARIABLES | dict(run.environment)
        if run.requirement:
            packages = self._packages(run.requirement)
            if not packages.is_dir():
                raise NotRunError(f"{run.requirement} cannot be installed")
            variables["PYTHONPATH"] = str(packages)
        options = [
            "-o",
            str(output),
            "--step",
            run.steps,
            "--task",
            run.task,
            f"{run.program}.py",
            *arguments,
        ]
        return probe(["run", *options], self.repository(run.source), variables)


def probe(arguments: list[str], directory: Path, variables: dict[str, str] | None = None) -> str:
    """Run a command of probe in a directory, and return what it printed to standard output.

    Raises:
        RecordingError: The command failed or took too long.
    """
    command = [sys.executable, "-m", "probe_core.cli", *arguments]
    try:
        done = subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, text=True, timeout=MAX_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise RecordingError(f"took more than {MAX_SECONDS} s") from None
    if done.returncode:
        raise RecordingError(f"exit code {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout
