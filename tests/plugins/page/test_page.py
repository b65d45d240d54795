"""The page of a comparison: its verdict, its data, its policy, the same bytes from the same input."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from probe_page import head
from probe_page.document import SCRIPTS
from probe_page.hooks import probe_reporters
from probe_page.language import load_words
from probe_page.reporter import PageReporter
from probe_page.templates import format_script_json, read_asset
from probe_pytorch.demo import unpack
from support.conformance import failing
from support.pages import Page, hash_of
from support.runs.hostile_runs import EVERYTHING, READABLE, make_hostile
from support.runs.recorded import forward, tensor, write_run

from probe_core.testing import ReporterConformance

LARGEST_ASSETS = 400_000
TEMPLATES = ("page.html", "ranks.html", "exchanges.html")
MARKUP = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", '"><svg onload=alert(1)>',
          "<!--<script>", "]]>{{7*7}}{% raw %}&lt;b&gt;"]  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    unpack(directory)
    return directory


@pytest.fixture
def page_of(probe: Any, tmp_path: Path) -> Any:
    """``page_of(target, golden)``: the one page that was written."""

    def compare(*arguments: str | Path) -> Page:
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        assert probe("compare", *arguments, "-o", out) == 0, probe.err
        (path,) = out.rglob("*compare_result*.html")
        return Page(path)

    return compare


def test_the_reporter_conforms(tmp_path: Path) -> None:
    (spec,) = probe_reporters()
    assert failing(ReporterConformance, tmp_path, spec=spec) == set()


def test_the_verdict_stands_in_the_page_without_its_script(demo: Path, page_of: Any) -> None:
    page = page_of(demo / "target" / "step0", demo / "golden" / "step0")
    shown = " ".join(" ".join(" ".join(texts) for tag, texts in page.texts.items() if tag != "script").split())
    assert "DIVERGED" in shown and "was called with a different argument" in shown
    assert "scores = torch.matmul(q, k.transpose(-1, -2)) * SCALE" in page.texts["pre"]
    assert page.texts["b"][:2] == ["216", "216"] and "Tensor.__mul__.0.forward.output.0" in page.texts["a"]


def test_the_rows_are_those_of_the_table(demo: Path, probe: Any, tmp_path: Path) -> None:
    sides = demo / "target" / "step0", demo / "golden" / "step0"
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "jsonl,html") == 0, probe.err
    (path,) = (tmp_path / "o").glob("*.html")
    (table,) = (tmp_path / "o").glob("compare_result*.jsonl")
    rows = [json.loads(line) for line in table.read_text("utf-8").splitlines()]
    page = Page(path)
    columns = page.columns("rows")
    assert columns["#row"] == list(range(2, len(rows) + 2))
    calls = page.columns("ops")
    names = [
        calls["key"][int(op)] + name[1:] if name[0] == "=" else name[1:]
        for op, name in zip(columns["#op"], columns["#name"])
    ]
    assert names == [row["NPU Name"] for row in rows]
    for header in ("NPU Name", "Bench Name"):
        assert set(columns[header]) == {0.0}  # the name of the row
    for header in (
        columns.keys() - {"NPU Name", "Bench Name"} - {"#row", "#op", "#state", "#error", "#noise", "#why", "#name"}
    ):
        for cell, row in zip(columns[header], rows):
            value = row[header]
            if isinstance(value, float | int) and not isinstance(value, bool):
                assert cell == pytest.approx(value, rel=2e-7, abs=0), header
            else:
                assert cell == ("" if value is None else str(value)), header
    assert sum(calls["rows"]) == len(rows) and len(calls["key"]) == len(set(calls["key"]))
    cause = calls["key"].index("Tensor.__mul__.0.forward")
    assert calls["out"][cause] > 1000 * calls["noise"][cause] and calls["into"][cause] <= calls["noise"][cause]
    assert page.meta["causes"] == ["Tensor.__mul__.0.forward"]
    assert calls["modules"][cause].split("\n")[0] == "Module.block.attention.Attention.forward.0"
    assert "train.py" in calls["stack"][cause]


def test_a_backward_call_takes_in_what_its_forward_call_left(demo: Path, page_of: Any) -> None:
    """The gradient of a loss is 1 in both runs, but the loss was computed from other values."""
    calls = page_of(demo / "target" / "step0", demo / "golden" / "step0").columns("ops")
    into = dict(zip(calls["key"], calls["into"]))
    assert into["Functional.cross_entropy.0.forward"] > 1e-3
    assert into["Functional.cross_entropy.0.backward"] >= into["Functional.cross_entropy.0.forward"]


def test_the_same_input_gives_the_same_bytes(demo: Path, page_of: Any) -> None:
    sides = demo / "target" / "step0", demo / "golden" / "step0"
    first, second = page_of(*sides), page_of(*sides)
    assert first.source == second.source


def test_the_policy_admits_the_pages_own_script_and_style_alone(demo: Path, page_of: Any) -> None:
    page = page_of(demo / "target" / "step0", demo / "golden" / "step0")
    (style,) = page.texts["style"]
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    assert page.policy == {
        "default-src": "'none'", "script-src": hash_of(script), "style-src": hash_of(style),
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    assert not [attrs for _, attrs in page.tags if "style" in attrs or any(name[:2] == "on" for name in attrs)]
    places = [attrs[name] for _, attrs in page.tags for name in ("src", "href") if name in attrs]
    assert places and all(place is not None and place.startswith("#") for place in places)
    assert not re.search(
        r"\b(?:fetch|XMLHttpRequest|WebSocket|EventSource|import)\(|innerHTML|eval\(|new Function", script
    )


@pytest.mark.parametrize("payload", [*MARKUP, EVERYTHING])
def test_names_from_dumps_are_text(payload: str, runs: Any, page_of: Any, tmp_path: Path) -> None:
    base = make_hostile(runs("tensor_L1_dist2"), tmp_path / "hostile", payload, READABLE)
    plain = page_of(*(runs("tensor_L1_dist2") / side / "step0" / "rank0" for side in ("npu_dump", "bench_dump")))
    page = page_of(*(base / side / "step0" / "rank0" for side in ("npu_dump", "bench_dump")))
    known = {tag for tag, _ in plain.tags} | {
        "li",
        "ul",
        "dl",
        "dt",
        "dd",
        "details",
        "summary",
        "p",
        "figure",
        "figcaption",
        "pre",
    }
    assert {tag for tag, _ in page.tags} <= known
    assert page.source.count("<script") == plain.source.count("<script")
    assert page.source.count("</script") == plain.source.count("</script")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028\ud800]", page.source)
    assert page.columns("ops")["key"] and page.columns("rows")["#name"]


def test_data_within_the_page_ends_no_script() -> None:
    value = {"a": ["</script><!--", "\u2028&", "\ud800"]}
    text = format_script_json(value)
    assert "<" not in text and "&" not in text and text.isascii() and json.loads(text) == value


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_opens_in_the_language_asked_for(lang: str, demo: Path, page_of: Any) -> None:
    page = page_of(demo / "target" / "step0", demo / "golden" / "step0", "--lang", lang)
    assert page.meta["lang"] == lang
    assert load_words()["compared"][lang] in page.texts["span"]


def test_every_text_has_both_languages_and_is_used() -> None:
    templates = "".join(map(read_asset, TEMPLATES))
    sources = templates + "".join(map(read_asset, SCRIPTS)) + inspect.getsource(head)
    for key, texts in load_words().items():
        assert set(texts) == {"en", "zh"} and all(texts.values()), key
        made = key.startswith(("column ", "means_", "bar_", "s_")) or key.endswith("_level")
        assert made or f'"{key}"' in sources, f"{key} is not used"
    for key in re.findall(r"\btext\(\"(\w+)\"", sources) + re.findall(r't\("(\w+)"\)', templates):
        assert key in load_words(), key


def test_a_language_that_there_is_not_is_named(probe: Any, demo: Path, tmp_path: Path) -> None:
    sides = demo / "target" / "step0", demo / "golden" / "step0"
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "html:lang=de") == 2
    assert 'no language "de"' in probe.err
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "xlsx", "--lang", "zh") == 2
    assert "no page is written" in probe.err


def test_the_assets_are_small() -> None:
    assert (
        sum(len(read_asset(name).encode()) for name in (*SCRIPTS, *TEMPLATES, "page.css", "words.json"))
        < LARGEST_ASSETS
    )


# -- which ways of calling write it ---------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    for side, value in (("t", 9.0), ("g", 1.0)):
        write_run(tmp_path / side, {"Torch.a.0.forward": forward(tensor(), output=[tensor(value=value)])})
    return tmp_path / "t", tmp_path / "g"


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ([], {".xlsx", ".html", ".json", ".txt"}),
        (["-c"], {".xlsx"}),
        (["-c", "--format", "html"], {".html"}),
        (["-da"], {".json"}),
        (["--format", "csv"], {".csv", ".json", ".txt"}),
    ],
)
def test_the_page_is_written_where_people_look(
    options: list[str], written: set[str], two: Any, probe: Any, tmp_path: Path
) -> None:
    assert probe("compare", *two, "-o", tmp_path / "o", *options) == 0, probe.err
    assert {path.suffix for path in (tmp_path / "o").iterdir()} == written


def test_ways_of_calling_that_scripts_use_write_no_page(two: Any, probe: Any, tmp_path: Path) -> None:
    file = tmp_path / "compare.json"
    file.write_text(
        json.dumps(
            {
                "npu_path": str(two[0] / "dump.json"),
                "bench_path": str(two[1] / "dump.json"),
                "is_print_compare_log": True,
            }
        )
    )
    assert probe("compare", "-i", file, "-o", tmp_path / "o") == 0, probe.err
    assert not list((tmp_path / "o").glob("*.html"))


def test_rows_that_agree_are_left_out_of_a_page_that_would_be_too_long(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probe_page.reporter.MAX_UNFILTERED_ROWS", 4)
    for side, worse in (("t", 9.0), ("g", 1.0)):
        calls = {
            f"Torch.a.{n}.forward": forward(tensor(), output=[tensor(value=worse if n == 7 else 1.0)]) for n in range(8)
        }
        write_run(tmp_path / side, calls)
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o") == 0, probe.err
    (path,) = (tmp_path / "o").glob("*.html")
    page = Page(path)
    assert page.columns("rows")["#row"] == [2, 3, 4, 5, 17] and page.meta["leftOut"] == 11


def test_a_table_without_rows_of_a_comparison(tmp_path: Path) -> None:
    writer = PageReporter().open(tmp_path / "a.html", ("Step", "Why"), 2)
    writer.write(("step0", "<b>"), None)
    writer.write((3, None), None)
    writer.close()
    columns = Page(tmp_path / "a.html").columns("rows")
    assert columns["Step"] == ["step0", 3.0] and columns["Why"] == ["<b>", ""]
