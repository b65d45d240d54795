"""The page of a pre-check: the files that it is read from, the commands that write it, and what is in it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from probe_precheck import Results, read_check
from support.pages import Page, data_of, hash_of
from support.runs.checked_files import (
    APIS,
    CALLS,
    SKIPPED,
    STATUSES,
    TIME,
    TO_CHECK,
    WRONG,
    details_of,
    write_check,
)
from support.runs.hostile_runs import EVERYTHING
from support.runs.precheck_runs import some_calls
from support.runs.recorded import write_run

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager


@pytest.fixture
def compared(probe: Any, tmp_path: Path) -> Path:
    """Two devices, compared with a page."""
    npu, gpu = (write_check(tmp_path / side, wrong=side == "npu") for side in ("npu", "gpu"))
    files = ("--npu", details_of(npu), "--gpu", details_of(gpu))
    assert probe("api-precision-compare", *files, "-o", tmp_path / "out", "--page") == 0, probe.err
    (page,) = (tmp_path / "out").glob("*.html")
    assert f"wrote {page}" in probe.out
    return page


# -- the files, read back ---------------------------------------------------------------------------


def test_the_first_stage_is_read_back(tmp_path: Path) -> None:
    check = read_check(Results(write_check(tmp_path)), Manager())
    assert check.stage == 1 and check.has_details and len(check.calls) == len(APIS) * CALLS
    wrong = next(call for call in check.calls if call.name == WRONG)
    assert (wrong.forward, wrong.backward) == ("error", "error") and "too large" in wrong.message[0]
    assert [output.name for output in wrong.outputs] == ["forward.output.0", "backward.output.0"]
    measure = wrong.outputs[0].measures["max_relative_error"]
    assert measure.device == pytest.approx(0.4) and measure.trusted is None and measure.ratio is None
    skipped = next(call for call in check.calls if call.name == SKIPPED)
    assert skipped.outputs == [] and skipped.backward == ""


def test_both_devices_of_the_second_stage_are_read_back(compared: Path, tmp_path: Path) -> None:
    (result,) = (tmp_path / "out").glob("*_result_*.csv")
    npu, gpu = (tmp_path / side / f"accuracy_checking_details_{TIME}.csv" for side in ("npu", "gpu"))
    check = read_check(Results(result, npu, gpu), Manager())
    assert check.stage == 2
    output = next(call for call in check.calls if call.name == WRONG).outputs[0]
    measure = output.measures["max_relative_error"]
    assert measure.device == pytest.approx(0.4) and measure.trusted == pytest.approx(2e-6)
    assert measure.ratio == pytest.approx(2e5) and measure.verdict == "error"
    assert output.standard == ("Benchmark Ratio", "标杆比对法") and output.dtype == "torch.float32"
    alone = read_check(Results(result), Manager())
    measure = (
        next(call for call in alone.calls if call.name == WRONG).outputs[0].measures["max_relative_error"]
    )
    assert measure.device is None and measure.ratio == pytest.approx(2e5)


@pytest.mark.parametrize("cut", [1, 10])
def test_a_file_that_is_being_written_is_read_up_to_its_last_row(cut: int, tmp_path: Path) -> None:
    result = write_check(tmp_path)
    for path in (result, details_of(result)):
        path.write_bytes(path.read_bytes()[:-cut])
    assert len(read_check(Results(result), Manager()).calls) == len(APIS) * CALLS - 1


def test_what_is_no_result_is_said(tmp_path: Path) -> None:
    result = write_check(tmp_path)
    with pytest.raises(UserError, match="no name of a pre-check's result"):
        read_check(Results(details_of(result)), Manager())
    result.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no column for backward"):
        read_check(Results(result), Manager())


# -- the page ---------------------------------------------------------------------------------------


def test_the_head_counts_the_calls(compared: Path, tmp_path: Path, probe: Any) -> None:
    result = write_check(tmp_path / "one")
    assert probe("show", tmp_path / "one", "--print") == 0
    page = Page(result.with_suffix(".html"))
    assert probe.out.strip() == str(result.with_suffix(".html"))
    tiles = re.findall(r'<li class="tile \w+[^"]*"><b>([\d,]+)</b>', page.source)
    assert [int(text) for text in tiles] == list(STATUSES.values())
    data = data_of(result.with_suffix(".html"))
    names, statuses = data["calls"]["name"], data["calls"]["status"]
    by_status = {name: statuses.count(place) for place, name in enumerate(STATUSES)}
    assert by_status == STATUSES and statuses[names.index(TO_CHECK)] == 1


def test_the_policy_admits_its_own_script_and_style_alone(compared: Path) -> None:
    page = Page(compared)
    (style,) = re.findall(r"<style>(.*?)</style>", page.source, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    assert page.policy == {
        "default-src": "'none'", "script-src": hash_of(script), "style-src": hash_of(style), "base-uri": "'none'",
        "form-action": "'none'",
    }  # fmt: skip
    assert not re.search(r'style="|\son\w+="|(src|href)="(?!#)', page.source.replace(script, ""))


def test_the_same_files_give_the_same_bytes(tmp_path: Path, probe: Any) -> None:
    result = write_check(tmp_path)
    pages = []
    for _ in range(2):
        assert probe("show", tmp_path, "--print") == 0
        pages.append(result.with_suffix(".html").read_bytes())
        result.with_suffix(".html").unlink()
    assert pages[0] == pages[1]


@pytest.mark.parametrize("payload", ["</script><img src=x onerror=alert(1)>", "<!--<script>", EVERYTHING])
def test_hostile_texts_do_not_leave_the_data(payload: str, tmp_path: Path, probe: Any) -> None:
    result = write_check(tmp_path, hostile=payload)
    assert probe("show", result, "--print") == 0, probe.err
    page = Page(result.with_suffix(".html"))
    assert {tag for tag, _ in page.tags} & {"img", "iframe", "object", "svg"} == set()
    assert [tag for tag, _ in page.tags].count("script") == 3


# -- the commands -----------------------------------------------------------------------------------


def test_run_ut_writes_it_with_the_command_of_each_call(probe: Any, tmp_path: Path) -> None:
    dump = write_run(tmp_path / "a run", some_calls())
    command = ("run-ut", "-i", dump, "-o", tmp_path / "out", "-d", "cpu", "--seed", "7")
    assert probe(*command, "--page") == 0, probe.err
    (page,) = (tmp_path / "out").glob("*.html")
    assert f"wrote {page}" in probe.out
    calls = data_of(page)["calls"]
    words = shlex.split(calls["command"][0])
    assert words[:4] == ["probe", "run-ut", "-i", str(dump)] and words[-1] == "--save-error-data"
    assert words[words.index("--only") + 1] == calls["name"][0] and words[words.index("--seed") + 1] == "7"
    assert probe(*words[1:], "-o", tmp_path / "again") == 0, probe.err
    assert "1 calls checked" in probe.out


def test_no_page_is_written_unless_it_is_asked_for(probe: Any, tmp_path: Path) -> None:
    dump = write_run(tmp_path / "run", some_calls())
    assert probe("run-ut", "-i", dump, "-o", tmp_path / "out", "-d", "cpu") == 0, probe.err
    assert not list((tmp_path / "out").glob("*.html"))


def test_show_makes_a_page_again_only_if_the_result_is_newer(probe: Any, tmp_path: Path) -> None:
    result = write_check(tmp_path)
    page = result.with_suffix(".html")
    assert probe("show", tmp_path, "--print") == 0
    page.write_text("kept")
    assert probe("show", tmp_path, "--print") == 0 and probe.out.strip() == str(page)
    assert probe("show", result, "--print") == 0 and page.read_text() == "kept"
    later = page.stat().st_mtime + 5
    os.utime(result, (later, later))
    assert probe("show", tmp_path, "--print", "--lang", "zh") == 0
    assert '<html lang="zh-CN">' in page.read_text("utf-8")


def test_show_prefers_what_is_newest(probe: Any, tmp_path: Path) -> None:
    write_check(tmp_path)
    newer = tmp_path / "compare_result_20270101120000.html"
    newer.write_text("")
    assert probe("show", tmp_path, "--print") == 0 and probe.out.strip() == str(newer)
    newer.rename(older := tmp_path / "compare_result_20250101120000.html")
    assert probe("show", tmp_path, "--print") == 0 and "accuracy_checking_result" in probe.out
    assert probe("show", older, "--print") == 0 and probe.out.strip() == str(older)


def test_a_page_without_details_says_so(probe: Any, tmp_path: Path) -> None:
    result = write_check(tmp_path)
    details_of(result).unlink()
    assert probe("show", tmp_path, "--print") == 0
    assert "details file is not beside" in result.with_suffix(".html").read_text("utf-8")
