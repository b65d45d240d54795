"""The benchmark of conditions: its cases are well formed, and answers are scored as documented."""

from __future__ import annotations

import base64
import json
import re
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from conditions.case import Bits, Case, Kind, Run
from conditions.cases import all_cases
from conditions.planted_secrets import NAMES, REMOTE_SECRET, leaks, secret_value, variables
from conditions.score import Word, accused_operator, read_answer, score, states_equality
from conditions.workspace import PROGRAM_FILES, Workspace

REPETITIONS = 5
ALL = all_cases(REPETITIONS)
SEED_CASE = Case("seed", Kind.CONDITIONS, Run("gpt"), Run("gpt"), (r"\bseed",), accuses_none=True)
RESUME_CASE = Case("step", Kind.RESUME, Run("gpt"), Run("gpt"), (r"\bexp_avg\b",))


def case_id(case: Case) -> str:
    return f"{case.kind.value}-{case.name}"


def test_the_cases_are_many_enough() -> None:
    count = Counter(case.kind for case in ALL)
    assert count[Kind.CONDITIONS] >= 24 and count[Kind.SEEDS] == 20 and count[Kind.SECRETS]
    assert count[Kind.EQUAL] == 5 * REPETITIONS and len([one for one in all_cases(20) if one.kind is Kind.EQUAL]) == 100
    resumed = [case for case in ALL if case.kind is Kind.RESUME]
    assert sum(bool(case.names) for case in resumed) >= 12
    assert {case.target.program for case in resumed if not case.names} == {
        "cnn",
        "gpt",
        "lstm",
        "vae",
        "policy",
    }
    assert len({case_id(case) for case in ALL}) == len(ALL)


@pytest.mark.parametrize("case", ALL, ids=case_id)
def test_a_case_is_well_formed(case: Case) -> None:
    assert case.target != case.golden
    for name in case.names:
        re.compile(name)
    should_name = case.kind in (Kind.CONDITIONS, Kind.SEEDS) or (case.kind is Kind.RESUME and bool(case.names))
    assert bool(case.names) is should_name
    assert case.names or case.bits is Bits.EQUAL
    assert not (case.accuses_none and case.bits is not Bits.DIFFERENT)
    for run in (case.target, case.golden):
        program = (PROGRAM_FILES / f"{run.program}.py").read_text()
        compile(program, run.program, "exec")
        for option in [one for one in run.arguments if one.startswith("--")]:
            assert f'"{option}"' in program
        if "--omit" in run.arguments:
            assert f'"{run.arguments[-1]}"' in program


def test_runs_of_the_cases_are_recorded_separately(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    runs = [run for case in ALL for run in (case.target, case.golden)]
    different = [run for number, run in enumerate(runs) if run not in runs[:number]]
    assert len({workspace.output(run) for run in runs}) == len(different)


def printed(output: Path, *lines: str, cause: dict[str, Any] | None = None) -> Any:
    """The answer that a comparison with these first lines gives."""
    content = {"verdict": lines[0].partition(":")[0], "causes": [cause] if cause else []}
    (output / "answer_1.json").write_text(json.dumps(content))
    return read_answer("\n".join((*lines, "  1. Functional.dropout.0.forward", "  condition: too late")), output)


def test_read_answer_takes_the_lines_of_conditions_below_the_verdict(tmp_path: Path) -> None:
    answer = printed(tmp_path, "DIVERGED: a", "  condition: b", "  condition: c")
    assert answer.head == ("DIVERGED: a", "  condition: b", "  condition: c") and answer.conditions is None
    assert printed(tmp_path, "AGREE: a").head == ("AGREE: a",)
    many = [f"  condition: {number}" for number in range(5)]
    assert len(printed(tmp_path, "AGREE: a", *many).head) == 4


@pytest.mark.parametrize(
    "lines, op, word",
    [
        (["DIVERGED: in step0, seeds differ"], "conditions.seed", Word.RIGHT),
        (["DIVERGED: another random state", "  condition: seed 1 against 2"], "conditions.random", Word.RIGHT),
        (["DIVERGED: dropout returns other values, although inputs agree", "  condition: seed 1 against 2"],
         "Functional.dropout.0.forward", Word.WRONG),
        (["DIVERGED: dropout receives another seed"], "Functional.dropout.0.forward", Word.RIGHT),
        (["DIVERGED: the random state differs"], "conditions.random", Word.MISSING),
        (["AGREE: within rounding", "  condition: seed 1 against 2"], "", Word.WRONG),
    ],
)  # fmt: skip
def test_score_of_a_seed(tmp_path: Path, lines: list[str], op: str, word: Word) -> None:
    answer = printed(tmp_path, *lines, cause={"op": op} if op else None)
    assert score(SEED_CASE, answer).word is word
    assert bool(accused_operator(SEED_CASE, answer)) is (word is Word.WRONG and bool(op))


@pytest.mark.parametrize(
    "cause, word",
    [
        ({"op": "conditions.optimizer", "statement": "exp_avg is zero against 0.1"}, Word.RIGHT),
        ({"op": "conditions.optimizer", "statement": "step 0 against 3"}, Word.WRONG),
        (
            {"op": "AdamW.step.0", "statement": "leaves other parameters, although exp_avg is equal"},
            Word.WRONG,
        ),
        (None, Word.MISSING),
    ],
)
def test_score_of_a_resumed_run(tmp_path: Path, cause: dict[str, Any] | None, word: Word) -> None:
    assert score(RESUME_CASE, printed(tmp_path, "DIVERGED: a", cause=cause)).word is word


def test_score_of_equal_runs(tmp_path: Path) -> None:
    (case,) = [one for one in ALL if one.name == "gpt-2"]
    assert score(case, printed(tmp_path, "AGREE: equal in all 3 values")).word is Word.RIGHT
    assert score(case, printed(tmp_path, "AGREE: within rounding in all 3 values")).word is Word.WRONG
    assert score(case, printed(tmp_path, "AGREE: equal in all 3 values", "  condition: a")).word is Word.WRONG
    assert score(case, printed(tmp_path, "DIVERGED: a", cause={"op": "a"})).word is Word.WRONG
    assert states_equality("AGREE: within rounding in all 3 values", "statistics")
    assert not states_equality("AGREE: within rounding in all 3 values, but a", "statistics")


def test_leaks_finds_secrets_in_every_form(tmp_path: Path) -> None:
    secret = secret_value("HF_TOKEN", 1)
    assert secret in variables(1)["HF_TOKEN"] and len({secret_value(name, 1) for name in NAMES}) == len(NAMES)
    assert list(leaks([tmp_path], "harmless", tmp_path)) == []
    (tmp_path / "conditions.json").write_text(f'{{"a": "{secret}"}}')
    with zipfile.ZipFile(tmp_path / "table.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sheet.xml", REMOTE_SECRET)
    packed = base64.b64encode(zlib.compress(f"{secret}{list(range(50))}".encode())).decode()
    (tmp_path / "page.html").write_text(f"<script>'{packed}'</script>")
    assert [line.rpartition("/")[2] for line in leaks([tmp_path], secret, tmp_path)] == [
        "the output contains HF_TOKEN",
        "conditions.json contains HF_TOKEN",
        "page.html contains HF_TOKEN",
        "table.xlsx contains URL of the remote",
    ]
