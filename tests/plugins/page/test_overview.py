"""The page over several ranks and steps, and the command that opens a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_page.show_command import find_newest_page
from support.pages import Page
from support.runs.recorded import forward, tensor, write_run

from probe_core.errors import UserError


@pytest.fixture
def ranks(tmp_path: Path) -> tuple[Path, Path]:
    """Two steps of two ranks, of which the last rank of the last step differs."""
    for step in (0, 1):
        for rank in (0, 1):
            for side, value in (("t", 9.0), ("g", 1.0)):
                off = value if step == rank == 1 else 1.0
                calls = {"Torch.a.0.forward": forward(tensor(), output=[tensor(value=off)])}
                write_run(tmp_path / side / f"step{step}" / f"rank{rank}", calls)
    return tmp_path / "t", tmp_path / "g"


def test_one_page_leads_to_that_of_each_rank(ranks: Any, probe: Any, tmp_path: Path) -> None:
    assert probe("compare", *ranks, "-o", tmp_path / "o") == 0, probe.err
    (path,) = (tmp_path / "o").glob("compare_summary_*.html")
    assert f"wrote {path}" in probe.out
    page = Page(path)
    links = [attrs["href"] or "" for tag, attrs in page.tags if tag == "a" and ".html" in (attrs.get("href") or "")]
    assert len({link.partition("#")[0] for link in links}) == 4 and len(links) == 9
    assert all((path.parent / link.partition("#")[0]).is_file() for link in links)
    own = page_of_rank(tmp_path / "o", 1, 1).as_posix()
    assert f"{own}#Torch.a.0.forward.output.0" in links
    classes = [attrs["class"] for tag, attrs in page.tags if tag == "td"]
    assert classes == ["agree", "agree", "agree", "diverged"]
    answer = json.loads(next((tmp_path / "o").glob("answer_*.json")).read_text("utf-8"))
    assert answer["sentence"].removeprefix("DIVERGED: ") in page.texts["p"]
    assert (tmp_path / "o" / page_of_rank(tmp_path / "o", 1, 1)).is_file()


def page_of_rank(out: Path, step: int, rank: int) -> Path:
    (path,) = out.glob(f"step{step}/compare_result_rank{rank}_*.html")
    return path.relative_to(out)


def test_a_rank_that_failed_stands_in_the_page(ranks: Any, probe: Any, tmp_path: Path) -> None:
    broken = ranks[0] / "step0" / "rank1" / "dump.json"
    broken.write_text(broken.read_text()[:60])
    assert probe("compare", *ranks, "-o", tmp_path / "o", "-j", "1") == 2
    page = Page(next((tmp_path / "o").glob("compare_summary_*.html")))
    classes = [attrs["class"] for tag, attrs in page.tags if tag == "td"]
    assert classes.count("") == 1 and "diverged" in classes


def test_no_page_is_written_where_none_is_asked_for(ranks: Any, probe: Any, tmp_path: Path) -> None:
    assert probe("compare", *ranks, "-o", tmp_path / "o", "--format", "csv") == 0, probe.err
    assert not list((tmp_path / "o").rglob("*.html"))


# -- probe show -----------------------------------------------------------------------------------------


def test_show_prints_the_path_where_there_is_no_screen(
    probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    page = tmp_path / "compare_result_20260101000000.html"
    page.write_text("")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("no screen"))
    assert probe("show", tmp_path) == 0 and probe.out.strip() == str(page)


def test_show_opens_a_browser(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "compare_result_20260101000000.html"
    page.write_text("")
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    assert probe("show", tmp_path) == 0 and opened == [page.as_uri()]


def test_show_says_what_is_missing(probe: Any, tmp_path: Path) -> None:
    assert probe("show", tmp_path) == 2 and f"There is no page in {tmp_path}." in probe.err
    assert probe("show", tmp_path / "absent") == 2 and f"{tmp_path / 'absent'} does not exist." in probe.err
    assert "Write a page: probe compare TARGET GOLDEN -o OUT\n" in probe.err


def test_the_newest_page_is_shown(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        find_newest_page(tmp_path)
    (tmp_path / "step0").mkdir()
    for name in (
        "compare_result_20260101000000.html", "compare_result_rank0_20260101000003.html",
        "compare_result_rank1_20260101000003.html", "compare_summary_20260101000003.html",
        "step0/compare_result_20260101000002.html",
    ):  # fmt: skip
        (tmp_path / name).write_text("")
    assert find_newest_page(tmp_path).name == "compare_summary_20260101000003.html"
    (tmp_path / "compare_result_20260101000004.html").write_text("")
    assert find_newest_page(tmp_path).name == "compare_result_20260101000004.html"
    (tmp_path / "compare_result_20260101000005_interrupted.html").write_text("")
    assert find_newest_page(tmp_path).name == "compare_result_20260101000005_interrupted.html"
    assert find_newest_page(tmp_path / "compare_result_20260101000000.html").name.endswith("00000.html")
