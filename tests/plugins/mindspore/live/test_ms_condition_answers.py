"""Answers of comparisons of MindSpore runs whose conditions differ, by programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore")

from support import TESTS
from support.probe import Probe
from support.runs.answer_files import read_answer

PROGRAM = TESTS / "support" / "on_mindspore" / "ms_dropout.py"


class Story:
    """The runs of a test, and the answers of their comparisons."""

    def __init__(self, directory: Path, probe: Probe) -> None:
        self._directory, self._probe = directory, probe

    def record(self, name: str, *arguments: str) -> Path:
        """Record the program in a process of its own."""
        run = self._directory / name
        subprocess.run(
            [sys.executable, PROGRAM, run, *arguments], check=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert not list(run.rglob("dump_error_info.log"))
        return run

    def answer(self, target: Path, golden: Path) -> tuple[str, Any]:
        """Return the first line, and the content of the answer file."""
        out = self._directory / f"{target.name}-{golden.name}"
        assert self._probe("compare", target, golden, "-o", out) == 0
        lines = self._probe.out.splitlines()
        first = next(line for line in lines if line.startswith(("AGREE", "DIVERGED", "CANNOT", "NOT")))
        return first, read_answer(out)


@pytest.fixture
def story(tmp_path: Path, probe: Probe) -> Story:
    return Story(tmp_path, probe)


def kinds_of(answer: Any) -> set[str]:
    return {condition["kind"] for condition in answer["conditions"]}


@pytest.mark.parametrize(
    ("level", "kind", "clause"),
    [
        ("L0", "cell", "and Cell.drop.Dropout.forward.0 draws from it"),
        ("L0", "function", "and Cell.second.Dense.forward.0 receives values that differ"),
        ("L1", "cell", "and Primitive.dropout.Dropout.0.forward draws from it"),
        ("mix", "cell", "and Primitive.dropout.Dropout.0.forward draws from it"),
        ("mix", "function", "and Functional.dropout.0.forward draws from it"),
    ],
)
def test_seed_is_the_cause_and_not_the_dropout(story: Story, level: str, kind: str, clause: str) -> None:
    target, golden = (story.record(f"seed{seed}", level, kind, seed) for seed in ("6", "5"))
    first, answer = story.answer(target, golden)
    assert first.startswith(f"DIVERGED: in step0, the random seed of mindspore differs (6 against 5), {clause}")
    assert kinds_of(answer) == {"random_state"}
    assert not [cause["op"] for cause in answer["causes"] if "ropout" in cause["op"]]


@pytest.mark.parametrize("kind", ["cell", "function"])
def test_programs_without_a_seed_draw_from_random_states_that_differ(story: Story, kind: str) -> None:
    target, golden = (story.record(name, "mix", kind, "none") for name in ("first", "second"))
    first, answer = story.answer(target, golden)
    assert first.startswith("DIVERGED: in step0, the random state of mindspore differs, and ")
    assert "draws from it" in first
    assert answer["causes"][0]["op"] == "conditions.random_state"


def test_a_seed_that_another_layer_received_is_the_cause(story: Story) -> None:
    target, golden = (story.record(kind, "mix", kind, "5") for kind in ("layer", "function"))
    first, answer = story.answer(target, golden)
    clause = "the random state of mindspore differs, and Functional.dropout.0.forward draws from it"
    assert first.startswith(f"DIVERGED: in step0, {clause}")
    assert {condition["name"] for condition in answer["conditions"]} == {"mindspore"}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_another_order_of_the_batch_is_the_cause(story: Story, level: str) -> None:
    golden = story.record("golden", level, "cell", "5")
    first, answer = story.answer(story.record("target", level, "cell", "5", "reversed"), golden)
    assert first.startswith("DIVERGED: in step0, the batch differs: input.0 of the model, float32[6, 4]")
    assert kinds_of(answer) == {"batch"}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("kind", ["cell", "function"])
def test_an_equal_repetition_agrees_without_conditions(story: Story, level: str, kind: str) -> None:
    runs = [story.record(name, level, kind, "5") for name in ("first", "second")]
    first, answer = story.answer(*runs)
    assert first.startswith("AGREE")
    assert answer["conditions"] == [] and "condition:" not in story._probe.out
