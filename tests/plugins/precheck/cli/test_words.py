"""The summary of a pre-check: counts, the worst first, how to look at one again."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from probe_precheck.cli import words as precheck_words
from probe_precheck.model import Detail, Message, Result, Status
from probe_precheck.results import CheckFiles
from probe_precheck.run import CheckPlan, CheckSummary
from probe_precheck.tables import DETAILS

STAMP = "20260101120000"
PASS, WARNING, ERROR, SKIP = Status.PASS, Status.WARNING, Status.ERROR, Status.SKIP


def detail(name: str, status: Status, numbers: Mapping[str, float], place: str = "forward.output.0") -> Detail:
    return Detail(f"{name}.{place}", status, "torch.float64", "torch.float32", "(2, 3)", numbers)


def result(name: str, status: Status, text: str = "", script: str = "", **numbers: float) -> Result:
    messages = (Message(text, f"{text} in English"),) if text else ()
    details = [detail(name, status, numbers)] if numbers else []
    return Result(name, status, None, messages, details, script)


def summary(capsys: pytest.CaptureFixture[str], *results: Result, earlier: int = 0, **plan: Any) -> str:
    """Return the words about a pre-check that came to ``results``."""
    files = CheckFiles(Path("out") / f"accuracy_checking_result_{STAMP}.csv", DETAILS, "zh", 14)
    found = CheckSummary(
        CheckPlan(Path("run/dump.json"), Path("out"), STAMP, **plan), files, len(results) + earlier, earlier
    )
    for one in results:
        found.count(one)
    precheck_words.print_summary(found)
    out, err = capsys.readouterr()
    return out + err


def shown(text: str) -> list[str]:
    """The names of the outputs that are shown as the worst, in their order."""
    return re.findall(r"^    (\S+\.output\.\d+)", text, re.MULTILINE)


@pytest.mark.parametrize("is_explainable", [False, True])
def test_the_end_points_to_explain_where_the_recorded_results_can_be_judged(
    is_explainable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    files = CheckFiles(Path(f"accuracy_checking_result_{STAMP}.csv"), DETAILS, "zh", 14)
    plan = CheckPlan(Path("a run/dump.json"), Path("out"), STAMP)
    precheck_words.print_summary(CheckSummary(plan, files, is_explainable=is_explainable))
    assert ("\n    probe explain 'a run/dump.json'\n" in capsys.readouterr().out) is is_explainable


def test_counts_take_forward_and_backward_together(capsys: pytest.CaptureFixture[str]) -> None:
    both = {(PASS, PASS): "p", (PASS, ERROR): "e", (WARNING, PASS): "w", (SKIP, PASS): "q", (SKIP, SKIP): "s",
            (PASS, None): "r", (ERROR, SKIP): "f"}  # fmt: skip
    results = [Result(f"Torch.{name}.0", *statuses) for statuses, name in both.items()]
    said = summary(capsys, *results)
    assert "  2 error, 1 warning, 3 pass, 1 SKIP\n" in said
    assert said.startswith("7 ")


def test_an_earlier_part_is_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    said = summary(capsys, result("Torch.a.0", PASS), earlier=4)
    assert said.startswith("5 ") and "4 of them in an earlier run" in said
    assert "earlier" not in summary(capsys, result("Torch.a.0", PASS))


def test_both_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = summary(capsys, result("Torch.a.0", PASS))
    assert f"  wrote out/accuracy_checking_result_{STAMP}.csv\n" in said
    assert f"  wrote out/accuracy_checking_details_{STAMP}.csv\n" in said


def test_errors_stand_before_warnings_and_those_far_off_before_those_near(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = summary(
        capsys,
        result("Torch.near.0", ERROR, cosine=0.98, max_relative_error=0.1),
        result("Torch.warned.0", WARNING, cosine=0.99, max_relative_error=100.0),
        result("Torch.far.0", ERROR, cosine=-1.0, max_relative_error=5.0),
        result("Torch.passed.0", PASS, cosine=1.0),
    )
    assert shown(said) == [f"Torch.{name}.0.forward.output.0" for name in ("far", "near", "warned")]


def test_what_fails_by_the_rule_alone_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A second judgement, by a standard that knows the dtype, takes the alarm back; those come last."""
    far = {"max_abs_error": 9.0}
    numbers: dict[str, Any] = {
        "Torch.rule.0": (ERROR, PASS, far),
        "Torch.both.0": (ERROR, ERROR, {"max_abs_error": 1.0}),
    }
    results = [
        Result(name, status, None, (), [detail(name, status, own)], standard=standard)
        for name, (status, standard, own) in numbers.items()
    ]
    said = summary(capsys, *results)
    assert "  2 error, " in said and "  1 of the errors pass by their standard" in said
    assert shown(said) == ["Torch.both.0.forward.output.0", "Torch.rule.0.forward.output.0"]
    assert "standard" not in summary(capsys, results[1])


def test_nan_is_worse_than_any_number() -> None:
    results = [
        result("Torch.a.0", ERROR, max_relative_error=math.nan),
        result("Torch.b.0", ERROR, max_relative_error=1e30),
    ]
    assert max(results, key=precheck_words.get_severity_key).name == "Torch.a.0"


def test_the_worst_output_of_an_api_is_one_of_its_gravest() -> None:
    details = [
        detail("Torch.a.0", PASS, {"max_relative_error": 9.0}),
        detail("Torch.a.0", ERROR, {"max_relative_error": 1.0}, "forward.output.1"),
        detail("Torch.a.0", WARNING, {"max_relative_error": 8.0}, "backward.output.0"),
        detail("Torch.a.0", ERROR, {"max_relative_error": 2.0}, "backward.output.1"),
    ]
    worst = precheck_words.find_worst_detail(Result("Torch.a.0", ERROR, ERROR, (), details))
    assert worst is details[3]
    assert precheck_words.find_worst_detail(Result("Torch.a.0", PASS, None, (), details[:1])) is None


def test_few_are_shown_and_the_others_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    results = [result(f"Torch.api{i}.0", ERROR, max_relative_error=float(i)) for i in range(9)]
    said = summary(capsys, *results)
    assert shown(said) == [f"Torch.api{i}.0.forward.output.0" for i in range(8, 3, -1)]
    assert re.search(r"more .*4|4 .*more", said)


def test_reasons_for_skipping_are_counted_whatever_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [f"API Torch.a.{i} not support for run ut. SKIP." for i in range(3)]
    results = [Result(f"Torch.a.{i}", SKIP, None, (Message(text),)) for i, text in enumerate(texts)]
    said = summary(capsys, *results, Result("Torch.b.0", SKIP, None, (Message("no device"),)))
    assert "    3 × API Torch.a not support for run ut. SKIP.\n    1 × no device\n" in said


def test_reasons_that_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    results = [Result(f"Torch.a{i}.{j}", SKIP, None, (Message(f"reason {i}"),))
               for i in range(8) for j in range(9 - i)]  # fmt: skip
    said = summary(capsys, *results)
    assert "    5 × reason 4\n    9 for 3 other reasons, which the result states\n" in said
    few = summary(capsys, Result("Torch.a.0", SKIP, None, (Message("reason"),)))
    assert "other reason" not in few


def test_what_took_its_process_with_it_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    lost = Result("Torch.a.0", ERROR, None, (Message("ERROR: gone"),), lost=True)
    said = summary(capsys, lost)
    assert "warning: Torch.a.0 ended the worker process" in said


def test_messages_are_in_english_and_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    one = detail("Torch.a.0", ERROR, {"cosine": 0.5})
    said = summary(
        capsys,
        Result("Torch.a.0", ERROR, None, (), [Detail(one.name, ERROR, numbers=one.numbers, messages=(
            Message("中文", "bad\x1b[31m\nnews"),
        ))]),
        Result("Torch.b\x1b[2J.0", SKIP, None, (Message("why\x07not"),)),
    )  # fmt: skip
    assert "中文" not in said and "\x1b" not in said and "\x07" not in said
    assert "bad\\x1b[31m\\nnews" in said


# -- running one again -----------------------------------------------------------------------------


def plan(**fields: Any) -> CheckPlan:
    return CheckPlan(Path("a run/dump.json"), Path(), STAMP, **fields)


def test_the_command_that_runs_one_again() -> None:
    words = shlex.split(precheck_words.build_repeat_command(result("Torch.a.0", ERROR), plan(devices=("0", "1"))))
    assert words[:4] == ["probe", "run-ut", "-i", "a run/dump.json"]
    assert words[words.index("--only") + 1] == "Torch.a.0"
    assert words[words.index("-d") + 1 :][:2] == ["0", "1"]
    assert "-d" not in shlex.split(precheck_words.build_repeat_command(result("Torch.a.0", ERROR), plan()))


def test_names_of_strangers_run_nothing() -> None:
    words = shlex.split(precheck_words.build_repeat_command(result("Torch.a; rm -rf ~ #.0", ERROR), plan()))
    assert "Torch.a; rm -rf ~ #.0" in words


def test_a_script_is_run_where_there_is_one() -> None:
    one = result("Torch.a.0", ERROR, script="/data dir/Torch.a.0.py")
    assert shlex.split(precheck_words.build_repeat_command(one, plan())) == [sys.executable, "/data dir/Torch.a.0.py"]


# -- --fail-on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, reached",
    [(PASS, (False, False)), (SKIP, (False, False)), (WARNING, (True, False)), (ERROR, (True, True))],
)
def test_which_level_a_check_reaches(status: Status, reached: tuple[bool, bool]) -> None:
    files = CheckFiles(Path(f"accuracy_checking_result_{STAMP}.csv"), DETAILS, "zh", 14)
    found = CheckSummary(plan(), files)
    found.count(result("Torch.a.0", status))
    assert tuple(precheck_words.reaches(found, level) for level in ("warning", "error")) == reached
