"""The page of a pre-check: the files that it is read from, the commands that write it, and what is in it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page, data_of, hash_of
from support.runs.checked_files import (
    STATUSES,
    TO_CHECK,
    details_of,
    write_check,
)
from support.runs.hostile_runs import EVERYTHING
from support.runs.precheck_runs import some_calls
from support.runs.recorded import write_run


@pytest.fixture
def compared(probe: Any, tmp_path: Path) -> Path:
    """Two devices, compared with a page."""
    npu, gpu = (write_check(tmp_path / side, wrong=side == "npu") for side in ("npu", "gpu"))
    files = ("--npu", details_of(npu), "--gpu", details_of(gpu))
    assert probe("api-precision-compare", *files, "-o", tmp_path / "out", "--page") == 0, probe.err
    (page,) = (tmp_path / "out").glob("*.html")
    assert f"wrote {page}" in probe.out
    return page


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
    assert "1 call checked" in probe.out


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
    assert "details file is not in the directory of the result" in result.with_suffix(".html").read_text("utf-8")


def test_results_of_the_online_pre_check_have_no_page(probe: Any, tmp_path: Path) -> None:
    """The page of one of its files would tell of a part."""
    (tmp_path / "accuracy_checking_result_20260101120000_rank0.csv").write_text("API Name\n")
    (tmp_path / "online_20260101120000.json").write_text("{}")
    assert probe("show", tmp_path, "--print") == 2
    assert "online pre-check; their verdict has no page" in probe.err


def test_a_page_cannot_be_asked_of_a_receiver(probe: Any, tmp_path: Path) -> None:
    assert probe("run-ut", "--watch", tmp_path, "-o", tmp_path / "out", "--page") == 2
    assert "--page have no effect" in probe.err and not (tmp_path / "out").exists()
