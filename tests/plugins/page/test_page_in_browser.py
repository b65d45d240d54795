"""The page in a real browser, opened from a file without a network: filters, sorting, links, folds, keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_pytorch.demo import unpack
from support.browsers import CONTRAST, Open, Tab, browser, opened  # noqa: F401
from support.runs.hostile_runs import EVERYTHING, READABLE, make_hostile
from support.runs.recorded import forward, scalar, tensor, write_run
from support.sampling import sampled

from probe_core.cli.main import run

ROWS = 219
SLOW = pytest.mark.slow
CAUSE = "Tensor.__mul__.0.forward.output.0"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    unpack(directory)
    return compared(directory / "target" / "step0", directory / "golden" / "step0", directory / "out")


def compared(target: Path, golden: Path, out: Path) -> Path:
    """Compare two runs, and return the page."""
    assert run(["compare", str(target), str(golden), "-o", str(out), "--format", "html"]) == 0
    (path,) = out.rglob("compare_result*.html")
    return path


def test_it_opens_offline_and_shows_all_rows(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    assert tab.page.inner_text("h1") == "DIVERGED" and tab.count() == ROWS
    assert tab.page.inner_text("#count") == f"{ROWS} of {ROWS}"


FILTERS: list[tuple[str, str, Callable[[str], bool]]] = [
    (
        "#f-name",
        r"softmax\.0\.forward\.(in|out)put\.0",
        lambda name: "softmax.0.forward." in name and name[-1] == "0" and "put.0" in name,
    ),
    ("#f-phase", "backward", lambda name: ".backward." in name or "parameters_grad" in name),
    ("#f-module", "Module.block.attention.Attention.forward.0", lambda name: True),
    ("#f-state", "s_differ", lambda name: True),
    ("#f-dtype", "torch.int64", lambda name: True),
]


def test_each_filter_keeps_what_it_says(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    for field, value, keeps in FILTERS:
        if field in ("#f-name", "#f-module"):
            tab.page.fill(field, value)
        else:
            tab.page.select_option(field, value)
        tab.wait_for(lambda: tab.count() < ROWS)
        assert 0 < tab.count() < ROWS and all(map(keeps, tab.names())), field
        tab.page.click("#filters button[type=reset]")
        tab.wait_for(lambda: tab.count() == ROWS)


def test_page_opens_at_first_cause(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    assert tab.page.get_attribute("#grid .line.active .sticky", "title") == CAUSE
    assert tab.page.is_hidden("#details") and tab.page.evaluate("scrollY") == 0


def test_filters_are_part_of_the_address(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    tab.page.select_option("#f-phase", "backward")
    tab.wait_for(lambda: tab.count() < ROWS)
    backward = tab.count()
    tab.page.fill("#f-name", "soft")
    tab.wait_for(lambda: tab.count() < backward)
    filtered = tab.count()
    address = tab.page.evaluate("location.hash")
    assert "phase=backward" in address and "name=soft" in address
    tab.page.click("nav a[href='#rows']")
    tab.wait_for(lambda: tab.page.evaluate("location.hash").startswith("#rows?"))
    assert tab.count() == filtered
    for count in (filtered, backward, ROWS):
        tab.page.evaluate("history.back()")
        tab.wait_for(lambda count=count: tab.count() == count)  # type: ignore[misc]
    assert tab.page.input_value("#f-name") == tab.page.input_value("#f-phase") == ""
    other = opened(demo, address)
    assert other.count() == filtered and other.page.input_value("#f-name") == "soft"


def test_controls_have_roles_that_fit(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    assert tab.page.locator("button[role]").count() == 0
    assert tab.page.locator(":is(summary, button, [role=img]) :is(a, button, input, [tabindex])").count() == 0
    assert tab.page.locator("#grid [role=columnheader] > button").count() > 0


def test_page_without_javascript_states_so_at_the_top(demo: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(demo.as_uri())
    assert page.locator("main > :first-child").inner_text().startswith("JavaScript is off")
    assert page.is_visible("#verdict") and page.is_hidden("#rows") and page.is_hidden("#where")
    assert page.is_hidden(".tools")
    context.close()


def test_rows_of_none_are_not_shown_as_passed(opened: Open, tmp_path: Path) -> None:
    for side in ("target", "golden"):
        write_run(tmp_path / side, {"Torch.a.0.forward": forward(tensor(), None, output=[tensor()])})
    tab = opened(compared(tmp_path / "target", tmp_path / "golden", tmp_path / "out"))
    levels = {name: tab.page.get_attribute(f"#line-{place}", "class") for place, name in enumerate(tab.names())}
    assert "pass" in levels["Torch.a.0.forward.input.0"] and "skip" in levels["Torch.a.0.forward.input.1"]


def test_a_pattern_that_is_none_is_said(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    tab.page.fill("#f-name", "(")
    tab.page.wait_for_selector("#f-problem:not([hidden])")
    assert "no regular expression" in tab.page.inner_text("#f-problem") and tab.count() == ROWS


def test_a_heading_sorts(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    head = tab.page.get_by_role("columnheader", name="Distance")
    head.click()
    assert head.get_attribute("aria-sort") == "descending"
    cells = tab.page.eval_on_selector_all(
        "#grid .line", "(all) => all.map((one) => [Number(one.dataset.place), one.children[3].textContent])"
    )
    shown = [float("inf") if text == "≠" else float(text) for _, text in sorted(cells)]
    assert shown == sorted(shown, reverse=True) and shown[0] > 0
    tab.page.get_by_role("columnheader", name="Distance").click()
    assert float(tab.page.eval_on_selector("#line-0", "(one) => one.children[3].textContent")) == 0


def test_a_link_leads_to_its_row(demo: Path, opened: Open) -> None:
    tab = opened(demo, f"#{CAUSE}")
    assert tab.page.inner_text("#details h3") == CAUSE
    assert "0.75" in tab.page.inner_text("#details") and "train.py" in tab.page.inner_text("#details .stack")
    assert tab.page.get_attribute("#grid .line.active .sticky", "title") == CAUSE
    other = opened(demo, "#Functional.softmax.0.forward")
    assert other.page.inner_text("#details h3") == "Functional.softmax.0.forward.input.0"
    unknown = opened(demo, "#%E0%A4%A-no-such-row")
    assert unknown.page.is_hidden("#details")


def test_the_cause_leads_to_its_row_whatever_is_filtered(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    tab.page.fill("#f-name", "embedding")
    tab.wait_for(lambda: tab.count() < ROWS)
    tab.page.click("#causes a.op")
    tab.page.wait_for_selector("#details:not([hidden])")
    assert tab.page.inner_text("#details h3") == CAUSE and tab.count() == ROWS


def test_keys_move_open_and_close(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    keyboard = tab.page.keyboard
    tab.page.focus("#grid")
    for key, place in (("Home", 0), ("ArrowDown", 1), ("ArrowUp", 0), ("End", ROWS - 1), ("Home", 0)):
        keyboard.press(key)
        assert tab.page.get_attribute("#grid", "aria-activedescendant") == f"line-{place}", key
    keyboard.press("PageDown")
    place = int(tab.page.get_attribute("#grid", "aria-activedescendant").removeprefix("line-"))
    assert place > 5
    keyboard.press("Enter")
    assert tab.page.is_visible("#details")
    keyboard.press("Escape")
    assert tab.page.is_hidden("#details")
    keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.id") == "f-name"


def test_folds_open(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    fold = tab.page.locator("#causes details").first
    assert not fold.locator("ul").is_visible()
    fold.locator("summary").click()
    assert fold.locator("ul").is_visible() and "Functional.softmax.0.forward" in fold.inner_text()
    assert tab.page.locator("#tree details[open] .leaf.introduced .badge").count() == 1
    closed = tab.page.locator("#tree details:not([open]) > summary").first
    before = tab.page.locator("#tree details:not([open])").count()
    closed.click()
    tab.wait_for(lambda: tab.page.locator("#tree details:not([open])").count() != before)


def test_columns_are_chosen_and_named_as_msprobe_does(demo: Path, opened: Open) -> None:
    tab = opened(demo)

    def headers() -> list[str]:
        found: list[str] = tab.page.eval_on_selector_all(
            "#grid .head button", "(all) => all.map((one) => one.textContent)"
        )
        return found

    assert "target norm" not in headers()
    tab.page.click("#columns summary")
    tab.page.get_by_label("target norm").check()
    assert "target norm" in headers()
    tab.page.check("#f-headers")
    tab.wait_for(lambda: "NPU l2norm" in headers())


def test_the_chart_zooms_and_points(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    tab.page.locator("#chart").scroll_into_view_if_needed()
    box = tab.page.locator("#chart").bounding_box()
    tab.page.mouse.move(box["x"] + 200, box["y"] + 60)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 400, box["y"] + 60, steps=4)
    tab.page.mouse.up()
    assert tab.page.is_enabled("#chart-reset") and tab.page.evaluate("chart.to - chart.from") < 80
    tab.page.click("#chart-reset")
    assert tab.page.is_disabled("#chart-reset")
    tab.page.focus("#chart")
    tab.page.keyboard.press("Home")
    assert "Functional.embedding.0.forward" in tab.page.inner_text("#chart-note")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#details:not([hidden])")


def test_both_languages_and_both_themes(demo: Path, opened: Open) -> None:
    tab = opened(demo)

    def ground() -> str:
        return str(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    tab.page.click("#theme")
    assert ground() != light
    tab.page.click("#lang")
    assert tab.page.get_attribute("html", "lang") == "zh-CN" and "已比对" in tab.page.inner_text("#verdict")
    assert tab.page.eval_on_selector("#grid .head .sticky button", "(one) => one.textContent") == "名称"


@pytest.mark.parametrize("width", sampled([360, 1280, 3840], 0, (360).__eq__))
def test_nothing_is_wider_than_the_window(width: int, demo: Path, opened: Open) -> None:
    tab = opened(demo, width=width)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    tab.page.click("#causes a.op")
    tab.page.wait_for_selector("#details:not([hidden])")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(scheme: str, demo: Path, opened: Open) -> None:
    tab = opened(demo, f"#{CAUSE}", scheme=scheme)
    assert tab.page.evaluate(CONTRAST) == []


def test_everything_that_is_worked_has_a_name(demo: Path, opened: Open) -> None:
    tab = opened(demo, f"#{CAUSE}")
    nameless = tab.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, a, summary, canvas, [role=grid], aside")].filter((one) => one.checkVisibility()
        && !(one.textContent.trim() || one.ariaLabel || one.getAttribute("aria-label") || (one.labels && one.labels.length))).map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []


PAYLOADS = ["</script><img src=x onerror=alert(1)>", "<!--<script>", EVERYTHING]


@pytest.mark.parametrize("payload", sampled(PAYLOADS, 0, EVERYTHING.__eq__))
def test_hostile_names_do_nothing(payload: str, runs: Any, opened: Open, tmp_path: Path) -> None:
    base = make_hostile(runs("tensor_L1_dist2"), tmp_path / "hostile", payload, READABLE)
    sides = (base / side / "step0" / "rank0" for side in ("npu_dump", "bench_dump"))
    tab = opened(compared(*sides, tmp_path / "out"))
    tab.page.focus("#grid")
    tab.page.keyboard.press("End")
    tab.page.keyboard.press("Enter")
    assert tab.page.is_visible("#details")
    tab.page.eval_on_selector_all("#tree summary", "(all) => all.forEach((one) => one.click())")
    for link in tab.page.locator("#causes h3 a.op").all()[:1]:
        link.click()
    assert tab.page.locator("body img, body iframe, body object").count() == 0
    assert tab.page.locator("script:not([type])").count() == 1


def test_runs_that_agree(opened: Open, tmp_path: Path) -> None:
    write_run(tmp_path / "run", {f"Torch.a.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)})
    tab = opened(compared(tmp_path / "run", tmp_path / "run", tmp_path / "out"))
    assert tab.page.inner_text("h1") == "AGREE" and tab.count() == 6
    assert tab.page.locator("#causes").count() == 0


# -- pictures, regions, several ranks, print -----------------------------------------------------------


def test_a_cause_and_its_row_have_pictures(demo: Path, opened: Open) -> None:
    tab = opened(demo, f"#{CAUSE}")
    for place in ("#causes .pictures", "#details .pictures"):
        shown = tab.page.locator(f"{place} svg[role=img]")
        assert shown.count() == 3 and tab.page.locator(f"{place} svg rect").count() > 10
        assert all(one.get_attribute("aria-label") for one in shown.all())
    assert "64 beyond rounding" in tab.page.inner_text("#details")
    assert "No below 0.9" in tab.page.inner_text("#details .limit >> nth=0")
    assert re.search(r"\[0, \d, \d\]", tab.page.locator("#details .sides-table").last.inner_text())
    other = opened(demo, "#Functional.embedding.0.forward.output.0")
    assert other.page.locator("#details .pictures").count() == 0


def test_an_input_leads_to_the_call_that_returned_it(demo: Path, opened: Open) -> None:
    tab = opened(demo, f"#{CAUSE}")
    item = tab.page.locator("#details .values li", has_text="input.0").first
    assert "← Torch.matmul.0.forward" in item.inner_text()
    item.locator("a").last.click()
    tab.wait_for(lambda: "Torch.matmul.0.forward" in tab.page.inner_text("#details h3"))


def test_headings_sort_by_the_keyboard(demo: Path, opened: Open) -> None:
    tab = opened(demo)
    head = tab.page.get_by_role("columnheader", name="Verdict")
    head.get_by_role("button").focus()
    tab.page.keyboard.press("Enter")
    tab.wait_for(lambda: tab.page.get_by_role("columnheader", name="Verdict").get_attribute("aria-sort") != "none")


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=SLOW)])
def test_every_column_sorts(every: int, demo: Path, opened: Open) -> None:
    tab = opened(demo)
    tab.page.click("#columns summary")
    for box in tab.page.locator("#columns input").all():
        box.check()
    count = tab.page.locator("#grid [role=columnheader]").count()
    assert count > 25
    for place in range(0, count, every):
        tab.page.evaluate("(n) => document.querySelectorAll('#grid [role=columnheader] button')[n].click()", place)
        assert tab.count() == ROWS
        sorted_by = tab.page.locator("#grid [aria-sort=ascending], #grid [aria-sort=descending]")
        assert sorted_by.get_attribute("aria-colindex") == str(place + 1)


def test_calls_that_do_not_line_up_stand_side_by_side(opened: Open, tmp_path: Path) -> None:
    for side, between in (("t", ["fused"]), ("g", ["mul", "add", "tanh"])):
        calls, value = {}, 1.0
        for number, name in enumerate(["a", "b", *between, "c", "d"]):
            value += 1 if number < 2 or name in "cd" else 3 / len(between)
            calls[f"Torch.{name}.0.forward"] = forward(tensor(value=value - 1), output=[tensor(value=value)])
        write_run(tmp_path / side, calls)
    assert run(
        ["compare", str(tmp_path / "t"), str(tmp_path / "g"), "-o", str(tmp_path / "o"), "--format", "html",
         "--match", "align"]
    ) == 0  # fmt: skip
    tab = opened(next((tmp_path / "o").glob("compare_result*.html")))
    lists = tab.page.locator("#regions ol").all_inner_texts()
    assert [text.split("\n") for text in lists] == [
        ["Torch.fused.0.forward"], ["Torch.mul.0.forward", "Torch.add.0.forward", "Torch.tanh.0.forward"]
    ]  # fmt: skip
    tree = tab.page.inner_text("#tree")
    assert all(f"Torch.{name}.0 does not line up" in tree for name in ("fused", "mul", "add", "tanh"))
    tab.page.select_option("#f-state", "s_region")
    tab.wait_for(lambda: 0 < tab.count() < 10)
    tab.page.locator("#regions a").last.click()
    tab.page.wait_for_selector("#details:not([hidden])")
    assert "Torch.tanh.0.forward" in tab.page.inner_text("#details")


def test_calls_of_one_run_alone_stand_in_place(opened: Open, tmp_path: Path) -> None:
    for side, names in (("t", "abde"), ("g", "abcd")):
        calls = {f"Torch.{name}.0.forward": forward(tensor(), output=[tensor()]) for name in names}
        write_run(tmp_path / side, calls)
    tab = opened(compared(tmp_path / "t", tmp_path / "g", tmp_path / "o"))
    leaves = [" ".join(text.split()) for text in tab.page.locator("#tree .leaf").all_inner_texts()]
    assert leaves == [
        "Torch.a.0", "Torch.b.0", "Torch.c.0 only in the golden", "Torch.d.0", "Torch.e.0 only in the target"
    ]  # fmt: skip
    assert all(leaf.bounding_box()["x"] > 0 for leaf in tab.page.locator("#tree .leaf").all())


def test_the_page_over_ranks_draws_a_line_for_each(opened: Open, tmp_path: Path) -> None:
    for rank in range(3):
        for side in ("t", "g"):
            calls = {}
            for number in range(20):
                off = 1.5 if side == "t" and rank == 1 and number >= 9 else 1.0
                calls[f"Torch.a.{number}.forward"] = forward(tensor(), output=[tensor(value=off)])
            calls["Distributed.send.0.forward"] = forward(tensor(), scalar((rank + 1) % 3))
            write_run(tmp_path / side / "step0" / f"rank{rank}", calls)
    out = tmp_path / "o"
    assert run(["compare", str(tmp_path / "t"), str(tmp_path / "g"), "-o", str(out), "--format", "html"]) == 0
    tab = opened(next(out.glob("compare_summary_*.html")))
    assert tab.page.locator("#ranks-legend input").count() == 3
    canvas = tab.page.locator("#ranks-chart")
    canvas.focus()
    tab.page.keyboard.press("Home")
    assert "rank0 · Torch.a.0.forward" in tab.page.inner_text("#ranks-note")
    before = tab.page.evaluate("many.spots.length")
    tab.page.locator("#ranks-legend input").nth(2).uncheck()
    assert tab.page.evaluate("many.spots.length") < before
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    tab.page.mouse.move(box["x"] + 200, box["y"] + 60)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    tab.page.mouse.up()
    assert tab.page.is_enabled("#ranks-reset") and tab.page.evaluate("many.to - many.from") < 15
    tab.page.keyboard.press("Escape")
    assert tab.page.is_disabled("#ranks-reset")
    cells = [
        " ".join(text.split()) for text in tab.page.locator("#ranks table.heat").first.locator("td").all_inner_texts()
    ]
    assert cells == ["AGREE", "DIVERGED 0.5", "AGREE"]
    sent = tab.page.locator("#ranks table.heat").last.locator("td[title]")
    assert sent.all_inner_texts() == ["1", "1", "1"] and sent.first.get_attribute("title") == "send"
    tab.page.click("#theme")
    tab.page.click("#lang")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=SLOW), "dark"])
def test_print_is_light_and_shows_what_matters(scheme: str, demo: Path, opened: Open) -> None:
    tab = opened(demo, scheme=scheme)
    tab.page.emulate_media(media="print", color_scheme=scheme)
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for shown in ("#verdict", "#causes .code", "#causes .bars", "#causes .pictures", "#chart"):
        assert tab.page.is_visible(shown), shown
    for hidden in (".top", "#filters", "#tree", "#grid-help", "#columns"):
        assert not tab.page.is_visible(hidden), hidden
