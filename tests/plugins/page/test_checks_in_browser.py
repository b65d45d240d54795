"""The page of a pre-check in a real browser: filters, counts, the chart, links, keys, languages and widths."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsers import CONTRAST, Open, Tab, browser, opened  # noqa: F401
from support.pages import data_of
from support.runs.checked_files import APIS, CALLS, STATUSES, TO_CHECK, WRONG, details_of, write_check
from support.runs.hostile_runs import EVERYTHING
from support.sampling import sampled

from probe_core.cli.main import run

ALL = len(APIS) * CALLS


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the first stage."""
    result = write_check(tmp_path_factory.mktemp("one"))
    assert run(["show", str(result), "--print"]) == 0
    return result.with_suffix(".html")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the second stage."""
    home = tmp_path_factory.mktemp("two")
    npu, gpu = (str(details_of(write_check(home / side, wrong=side == "npu"))) for side in ("npu", "gpu"))
    command = ["api-precision-compare", "--npu", npu, "--gpu", gpu, "-o", str(home / "out"), "--page"]
    assert run(command) == 0
    (page,) = (home / "out").glob("*.html")
    return page


def apis(tab: Tab) -> list[str]:
    found: list[str] = tab.page.eval_on_selector_all(".api", "(all) => all.map((one) => one.dataset.api)")
    return found


def kept(tab: Tab) -> int:
    return int(tab.page.inner_text("#count").split()[0])


def test_it_opens_offline_with_the_worst_api_first_and_open(one: Path, opened: Open) -> None:
    tab = opened(one)
    assert tab.page.inner_text("h1") == "CALLS FAIL"
    assert apis(tab)[:2] == ["Functional.softmax", "Tensor.mul"] and kept(tab) == ALL
    assert tab.page.locator(".skip-link").bounding_box()["x"] < 0, "it is shown when it has the focus"
    first = tab.page.locator(".api[open] .call").first
    assert first.locator("h3 a").inner_text() == WRONG
    assert first.locator(".output[open]").count() == 2
    assert "The error is too large" in first.inner_text() and "Max Relative Error" in first.inner_text()
    assert f"--only {WRONG} " in first.locator(".copy code").inner_text()
    assert tab.page.locator(".api[open]").count() == 1


@pytest.mark.parametrize(
    ("field", "value", "count"),
    [
        ("#f-name", "^torch\\.", 2 * CALLS), ("#f-status", "0", STATUSES["error"]),
        ("#f-status", "3", STATUSES["SKIP"]), ("#f-direction", "backward", ALL - 1),
        ("#f-dtype", "torch.float16", ALL // 2),
    ],
)  # fmt: skip
def test_each_filter_keeps_what_it_says(field: str, value: str, count: int, one: Path, opened: Open) -> None:
    tab = opened(one)
    if field == "#f-name":
        tab.page.fill(field, value)
    else:
        tab.page.select_option(field, value)
    tab.wait_for(lambda: kept(tab) == count)
    tab.page.click("#filters button[type=reset]")
    tab.wait_for(lambda: kept(tab) == ALL)


def test_a_pattern_that_is_none_is_said(one: Path, opened: Open) -> None:
    tab = opened(one)
    tab.page.fill("#f-name", "(")
    assert "no regular expression" in tab.page.inner_text("#f-problem") and kept(tab) == ALL


def test_a_count_shows_what_it_counts(two: Path, opened: Open) -> None:
    tab = opened(two)
    data = data_of(two)
    standards, judged = data["outputs"]["standard"]["en"], data["outputs"]["own"]
    for button in tab.page.locator("button.count").all():
        shown = {name: button.get_attribute(f"data-{name}") for name in ("unit", "kind", "status")}
        button.click()
        expected = int(button.inner_text())
        if shown["unit"] == "outputs":
            code, status = standards["texts"].index(shown["kind"]), int(shown["status"])
            found = zip(data["outputs"]["call"], standards["codes"], judged)
            calls = [call for call, own, level in found if own == code and level == status]
            assert len(calls) == expected
            expected = len(set(calls))
        wait_for_count(tab, expected)


def wait_for_count(tab: Tab, count: int) -> None:
    tab.wait_for(lambda: kept(tab) == count)


def test_apis_are_ordered_as_asked(one: Path, opened: Open) -> None:
    tab = opened(one)
    tab.page.select_option("#f-order", "name")
    assert apis(tab) == sorted(APIS)
    tab.page.select_option("#f-order", "run")
    assert apis(tab) == list(APIS)


def test_a_call_opens_by_its_link(one: Path, opened: Open) -> None:
    tab = opened(one, f"#{TO_CHECK}")
    assert tab.page.inner_text(".call.active h3 a") == TO_CHECK
    tab.page.fill("#f-name", "softmax")
    tab.page.evaluate("location.hash = '#Torch.exp.4'")
    tab.wait_for(lambda: tab.page.locator(".call.active h3 a").all_inner_texts() == ["Torch.exp.4"])
    assert kept(tab) == ALL


def test_both_devices_stand_side_by_side(two: Path, opened: Open) -> None:
    tab = opened(two)
    table = tab.page.locator(".api[open] .call").first.locator("table.both").first
    assert table.locator("thead").inner_text().strip("\n").split("\t")[1:] == [
        "Device",
        "Trusted device",
        "Ratio",
        "Result",
    ]
    line = next(row for row in table.locator("tbody tr").all() if row.inner_text().startswith("Max Relative Error"))
    assert line.locator("td").all_inner_texts() == ["0.4", "2.00e-6", "200000", "error"]
    other = next(row for row in table.locator("tbody tr").all() if row.inner_text().startswith("Max Abs Error"))
    number = other.locator("td span[title]").first
    assert (number.inner_text(), number.get_attribute("title")) == ("0.13333", "0.13333333")
    assert tab.page.evaluate("chart.points[0].y > 1e4 * chart.points[0].x")


def test_the_chart_leads_to_the_call(one: Path, opened: Open) -> None:
    tab = opened(one)
    tab.page.focus("#chart")
    tab.page.keyboard.press("ArrowRight")
    tab.wait_for(lambda: WRONG in tab.page.inner_text("#chart-note"))
    assert "0.4" in tab.page.inner_text("#chart-note")
    tab.page.keyboard.press("Enter")
    assert tab.page.inner_text(".call.active h3 a") == WRONG
    assert tab.page.evaluate("document.activeElement.textContent") == WRONG
    tab.page.select_option("#chart-measure", "rmse")
    tab.wait_for(lambda: "RMSE" in tab.page.inner_text(".api[open] .output summary >> nth=0"))


def test_apis_open_by_the_keyboard(one: Path, opened: Open) -> None:
    tab = opened(one)
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.id") == "f-name"
    tab.page.focus(".api:not([open]) summary")
    tab.page.keyboard.press("Enter")
    assert tab.page.locator(".api[open]").count() == 2


def test_long_lists_grow(tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.runs.checked_files.CALLS", 25)
    result = write_check(tmp_path)
    assert run(["show", str(result), "--print"]) == 0
    tab = opened(result.with_suffix(".html"))
    shown = tab.page.locator(".api[open] .call")
    assert shown.count() == 10
    for count in (20, 25):
        tab.page.click(".api[open] .calls > .more")
        assert shown.count() == count
    assert tab.page.locator(".api[open] .calls > .more").count() == 0


def test_both_languages_and_both_themes(two: Path, opened: Open) -> None:
    tab = opened(two)

    def ground() -> str:
        return str(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    tab.page.click("#theme")
    assert ground() != light
    tab.page.click("#lang")
    assert tab.page.get_attribute("html", "lang") == "zh-CN" and tab.page.inner_text("h1") == "有调用不通过"
    assert "标杆比对法" in tab.page.inner_text("#statuses") and "相对误差最大值" in tab.page.inner_text("#list")


@pytest.mark.parametrize("width", sampled([360, 1280, 3840], 0, (360).__eq__))
def test_nothing_is_wider_than_the_window(width: int, two: Path, opened: Open) -> None:
    tab = opened(two, width=width)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(scheme: str, two: Path, opened: Open) -> None:
    assert opened(two, scheme=scheme).page.evaluate(CONTRAST) == []


PAYLOADS = ["</script><img src=x onerror=alert(1)>", "<!--<script>", EVERYTHING]


@pytest.mark.parametrize("payload", sampled(PAYLOADS, 0, EVERYTHING.__eq__))
def test_hostile_names_do_nothing(payload: str, opened: Open, tmp_path: Path) -> None:
    result = write_check(tmp_path, hostile=payload)
    assert run(["show", str(result), "--print"]) == 0
    tab = opened(result.with_suffix(".html"))
    tab.page.eval_on_selector_all("summary", "(all) => all.forEach((one) => one.click())")
    tab.page.focus("#chart")
    tab.page.keyboard.press("End")
    assert tab.page.locator("body img, body iframe, body object").count() == 0
    assert tab.page.locator("script:not([type])").count() == 1
    commands = tab.page.locator(".copy code").all_inner_texts()
    assert commands and not any(set(text) & set("\x1b\x07\u202e\u200b\n") for text in commands)
