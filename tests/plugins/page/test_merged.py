"""The page of merged results: its data from each format, the commands, and the page in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from support.browsers import CONTRAST, Open, Tab, browser, opened  # noqa: F401
from support.pages import Page, data_of, hash_of
from support.runs.hostile_runs import EVERYTHING
from support.runs.merged import row, write_rank
from support.sampling import sampled

from probe_core.cli.main import run

RANKS = 8
FAR = "Distributed.all_reduce.3.forward.output.0"
"""The value that is off on rank 5 alone."""
GROUP, MISSING = "Distributed.all_reduce.0.forward.input.group", "Distributed.all_reduce.2.forward.input.0"


def write_ranks(directory: Path, hostile: str = "") -> Path:
    """Write the results of eight ranks, of which rank 5 is off in one value and rank 2 lacks one."""
    directory.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        rows = [row(GROUP, "N/A", "N/A", (f"tp-{rank // 4}{hostile}", "tp-0"))]
        for call in range(5):
            for side in ("input", "output"):
                name = f"Distributed.all_reduce.{call}.forward.{side}.0"
                value = 0.001 * (call + 1) * (1 + 0.01 * (rank % 3))
                if (rank, name) != (2, MISSING):
                    value = 0.9 if (rank, name) == (5, FAR) else value
                    rows.append(row(name + (hostile if call == 4 else ""), 1 - value / 2, value))
        write_rank(directory, rank, rows, "jsonl")
    return directory


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "merge.yaml"
    path.write_text("api:\n  - Distributed\ncompare_index:\n  - Cosine\n  - MaxAbsErr\n")
    return path


@pytest.mark.parametrize("format_", ["xlsx", "csv", "jsonl"])
def test_it_holds_the_cells_of_the_merged_tables(format_: str, config: Path, probe: Any, tmp_path: Path) -> None:
    command = ("merge-result", "-i", write_ranks(tmp_path / "in"), "-o", tmp_path / "out", "--config", config)
    assert probe(*command, "--format", format_, "--page") == 0, probe.err
    (path,) = (tmp_path / "out").glob("*.html")
    assert f"wrote {path}" in probe.out
    assert probe(*command) == 0, probe.err
    tables = data_of(path)
    assert [table["metric"] for table in tables] == ["Cosine", "MaxAbsErr"]
    for table, sheet in zip(tables, load_workbook(sorted((tmp_path / "out").glob("*.xlsx"))[-1])):
        header, *rows = (list(cells) for cells in sheet.iter_rows(values_only=True))
        assert table["ranks"] == header[1:] and table["names"] == [cells[0] for cells in rows]
        assert table["cells"] == [
            [pytest.approx(cell) if isinstance(cell, float) else cell for cell in cells[1:]] for cells in rows
        ]
    cells = dict(zip(tables[1]["names"], tables[1]["cells"]))
    assert cells[MISSING][2] is None and cells[FAR][5] == 0.9 and cells[GROUP][0] == "NPU:tp-0  Bench:tp-0"


def test_show_makes_it_of_what_is_there(config: Path, probe: Any, tmp_path: Path) -> None:
    command = ("merge-result", "-i", write_ranks(tmp_path / "in"), "-o", tmp_path / "out", "--config", config)
    assert probe(*command, "--format", "csv") == 0, probe.err
    assert not list((tmp_path / "out").glob("*.html"))
    assert probe("show", tmp_path / "out", "--print", "--lang", "zh") == 0, probe.err
    page = Path(probe.out.strip())
    assert len(data_of(page)) == 2 and '<html lang="zh-CN">' in page.read_text("utf-8")
    before = page.read_bytes()
    page.unlink()
    assert probe("show", tmp_path / "out", "--print", "--lang", "zh") == 0 and page.read_bytes() == before
    document = Page(page)
    (script,) = [text for text in document.texts["script"] if text.startswith('"use strict"')]
    assert document.policy["script-src"] == hash_of(script) and document.policy["default-src"] == "'none'"


def test_nothing_to_make_a_page_of_is_said(probe: Any, tmp_path: Path) -> None:
    assert probe("merge-result", "-o", tmp_path, "--page") == 2 and "no merged result" in probe.err
    broken = tmp_path / "multi_ranks_compare_merge_20260101120000.xlsx"
    for content in (b"PK", b"", b"NPU Name"):
        broken.write_bytes(content)
        assert probe("show", tmp_path, "--print") == 2 and "is not a merged result" in probe.err
    other = tmp_path / "multi_ranks_compare_merge_Cosine_20270101120000.csv"
    other.write_text("a,b\n1,2\n")
    assert probe("show", tmp_path, "--print") == 2 and "first column is not NPU Name" in probe.err


# -- in a browser -----------------------------------------------------------------------------------


@pytest.fixture
def page(config: Path, tmp_path: Path) -> Path:
    return page_of(write_ranks(tmp_path / "in"), config, tmp_path / "out")


def page_of(results: Path, config: Path, out: Path) -> Path:
    command = ["merge-result", "-i", str(results), "-o", str(out), "--config", str(config), "--page"]
    assert run(command) == 0
    (path,) = out.glob("*.html")
    return path


def names(tab: Tab) -> list[str]:
    found: list[str] = tab.page.locator(".multiple h3").all_inner_texts()
    return found


def test_values_that_differ_most_come_first(page: Path, opened: Open) -> None:
    tab = opened(page)
    assert names(tab)[0] == FAR and len(names(tab)) == 11
    first = tab.page.locator(".multiple").first
    assert first.locator("rect.far").count() == 1 and first.locator("rect.near").count() == RANKS - 1
    assert "rank5" in first.locator("dl").inner_text()
    titles = first.locator("title").all_text_contents()
    assert titles[5] == "rank5: 0.55" and len(titles) == RANKS
    assert tab.page.locator("rect.far").count() == 1, "ranks that differ a little are not marked"
    assert tab.page.is_visible("#of-one")
    tab.page.select_option("#f-metric", "1")
    tab.wait_for(lambda: tab.page.is_hidden("#of-one"))
    assert tab.page.locator(".multiple").first.locator("title").nth(5).text_content() == "rank5: 0.9"


@pytest.mark.parametrize(
    ("field", "value", "count"),
    [("#f-name", r"\.3\.", 2), ("#f-show", "texts", 1), ("#f-show", "differ", 11), ("#f-show", "equal", 0)],
)
def test_each_filter_keeps_what_it_says(field: str, value: str, count: int, page: Path, opened: Open) -> None:
    tab = opened(page)
    if field == "#f-name":
        tab.page.fill(field, value)
    else:
        tab.page.select_option(field, value)
    tab.wait_for(lambda: len(names(tab)) == count and tab.page.inner_text("#count") == f"{count} of 11")
    tab.page.click("#filters button[type=reset]")
    tab.wait_for(lambda: len(names(tab)) == 11)


def test_order_scale_and_link(page: Path, opened: Open) -> None:
    tab = opened(page, f"#{MISSING}")
    assert tab.page.inner_text(".multiple.active h3") == MISSING
    assert tab.page.locator(".multiple.active rect.missing").count() == 1
    tab.page.select_option("#f-order", "name")
    assert names(tab) == sorted(names(tab))
    tall = ".multiple:nth-child(3) rect.near >> nth=0"
    before = tab.page.get_attribute(tall, "height")
    tab.page.check("#f-scale")
    tab.wait_for(lambda: tab.page.get_attribute(tall, "height") != before)
    group = tab.page.locator(".multiple", has_text=GROUP)
    assert group.locator("rect.text").count() == RANKS and "tp-1" in group.locator("dl").inner_text()


@pytest.mark.parametrize("width", sampled([360, 1280, 3840], 0, (360).__eq__))
def test_widths_languages_and_contrast(width: int, page: Path, opened: Open) -> None:
    for scheme in ("light", "dark"):
        tab = opened(page, width=width, scheme=scheme)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.page.evaluate(CONTRAST) == []
    tab.page.click("#lang")
    assert tab.page.inner_text("h1") == "各卡对照" and "最远" in tab.page.inner_text("#list")


@pytest.mark.parametrize(
    "payload", sampled(["</script><img src=x onerror=alert(1)>", EVERYTHING], 0, EVERYTHING.__eq__)
)
def test_hostile_names_do_nothing(payload: str, config: Path, opened: Open, tmp_path: Path) -> None:
    tab = opened(page_of(write_ranks(tmp_path / "in", hostile=payload), config, tmp_path / "out"))
    assert tab.page.locator("body img, body iframe, body object").count() == 0
    assert len(names(tab)) == 11 and tab.page.locator("script:not([type])").count() == 1
